//! The page of the policies that push and roll need in Vault, and the policies that are shipped.

use std::fmt::Write;

use konverge_vault::{
    Deletion, KvVersion, Mount,
    policy::{OWN_TOKEN, Policy, Task},
};

/// The folder of the examples.
const TEAM: &str = "team-a/";

/// The ways to delete, each with the name of its policy on objects.
const DELETIONS: [(&str, Option<Deletion>); 4] = [
    ("soft", Some(Deletion::Soft)),
    ("destroy", Some(Deletion::Destroy)),
    ("metadata", Some(Deletion::Metadata)),
    ("keep", None),
];

fn engine(version: KvVersion) -> Mount {
    Mount::new(if version == KvVersion::Two { "secret" } else { "old" }, version)
}

/// The policy of push for a folder, with these ways to delete.
fn of_push(version: KvVersion, folder: &str, deletions: impl IntoIterator<Item = Deletion>) -> Policy {
    let tasks = [Task::Write, Task::Mark, Task::Search].into_iter().chain(deletions.into_iter().map(Task::Delete));
    tasks.fold(Policy::default(), |policy, task| policy.allow(&engine(version), folder, task))
}

/// The policy of push for the whole engine `secret`, with its own token.
pub(crate) fn of_push_everywhere() -> Policy {
    let deletions = DELETIONS.into_iter().filter_map(|(_, deletion)| deletion);
    of_push(KvVersion::Two, "", deletions).allow_own_token()
}

/// The policy of roll for the versions of all secrets of the engine `secret`, with its own token.
pub(crate) fn of_roll_everywhere() -> Policy {
    Policy::default().allow(&engine(KvVersion::Two), "", Task::FollowVersions).allow_own_token()
}

/// The reason for a task of push, and the effect if the policy lacks it.
fn reason(task: Task) -> (&'static str, &'static str) {
    match task {
        Task::Write => ("comparing and writing", "nothing works there"),
        Task::Mark => {
            ("marks of ownership: `patch`, or `read` and `update`", "`OwnerNotMarked`; the owner of a path is unknown")
        }
        Task::Search => ("finding content that no object requests", "such content stays; the log says so once"),
        Task::Delete(Deletion::Soft) => ("`soft`", "a deletion waits for its deadline"),
        Task::Delete(Deletion::Destroy) => {
            ("`destroy`, which must know the versions", "a deletion waits for its deadline")
        }
        Task::Delete(Deletion::Metadata) => ("`metadata`", "a deletion waits for its deadline"),
        Task::FollowVersions => ("`mode: Version`", "`PermissionDenied`; nothing restarts"),
        Task::FollowContent => ("`mode: Content`", "`PermissionDenied`; nothing restarts"),
    }
}

/// A table of tasks on an engine of this version, with a row for each route.
fn table(text: &mut String, version: KvVersion, tasks: impl IntoIterator<Item = Task>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| Route | Capabilities | For | Without it |\n|---|---|---|---|");
    for task in tasks {
        let (purpose, without) = reason(task);
        for (route, capabilities) in task.permissions(version) {
            let capabilities: Vec<_> =
                capabilities.iter().map(|capability| format!("`{}`", capability.as_str())).collect();
            let slash = if route.is_empty() { "" } else { "/" };
            let path = engine(version);
            let _ = writeln!(
                text,
                "| `{}/{route}{slash}…` | {} | {purpose} | {without} |",
                path.path(),
                capabilities.join(", ")
            );
        }
    }
}

fn block(text: &mut String, policy: &Policy) {
    let _ = writeln!(text, "\n```hcl\n{policy}```");
}

/// The page.
pub(crate) fn page() -> String {
    let mut text = "<!-- Generated; change the code instead. -->\n# Vault policies\n\n\
                    The policies of this page allow what the operators do, and no more. Tests run each of them on a real Vault, and take away one capability after \
                    the other. For another mount write its name instead of `secret`. With `--cluster-name one` the engine is mounted at \
                    `clusters/one/secret`.\n\n## Push\n\n\
                    [deploy/vault-policy.hcl](../../deploy/vault-policy.hcl) is for all of `secret/` and every deletion policy. The policies below are for the folder \
                    of one team and one [deletion policy](../explanation/ownership.md#deletion). Repeat the rules for each team and each deletion policy that \
                    objects may name. The operator must read to compare. A policy that only allows writes is not enough.\n\n"
        .to_owned();
    let deletions = DELETIONS.into_iter().filter_map(|(_, deletion)| deletion).map(Task::Delete);
    table(&mut text, KvVersion::Two, [Task::Write, Task::Mark, Task::Search].into_iter().chain(deletions));
    for (name, deletion) in DELETIONS {
        let _ = writeln!(text, "\n### One team with `{name}`");
        block(&mut text, &of_push(KvVersion::Two, TEAM, deletion));
    }
    let _ = writeln!(
        text,
        "\n### An engine of version 1\n\nIt is mounted at `old/` here. It has one route, no marks, and one way to delete; with `keep` leave out `delete`."
    );
    block(&mut text, &of_push(KvVersion::One, TEAM, [Deletion::Soft]));
    let _ = writeln!(
        text,
        "\n## Roll\n\n[deploy/vault-policy-rollout.hcl](../../deploy/vault-policy-rollout.hcl) shows the versions of all secrets of `secret/`, and no value. An engine of \
         version 1 has no versions, so the operator compares content there.\n"
    );
    table(&mut text, KvVersion::Two, [Task::FollowVersions, Task::FollowContent]);
    for (name, version, task) in [
        ("One team with `mode: Version`", KvVersion::Two, Task::FollowVersions),
        ("One team with `mode: Content`", KvVersion::Two, Task::FollowContent),
        ("One team on an engine of version 1", KvVersion::One, Task::FollowVersions),
    ] {
        let _ = writeln!(text, "\n### {name}");
        block(&mut text, &Policy::default().allow(&engine(version), TEAM, task));
    }
    let _ = writeln!(
        text,
        "\n## Both\n\nBoth operators look up, renew and revoke their own token. Vault's policy `default` allows that, and the shipped policies do. Without it they log \
         in anew each time the token expires, and the last token expires by itself.\n\n| Route | Capabilities |\n|---|---|"
    );
    for (route, capabilities) in OWN_TOKEN {
        let capabilities: Vec<_> = capabilities.iter().map(|capability| format!("`{}`", capability.as_str())).collect();
        let _ = writeln!(text, "| `{route}` | {} |", capabilities.join(", "));
    }
    text
}

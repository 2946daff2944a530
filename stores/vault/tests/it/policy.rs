//! Each policy of the docs, and the shipped ones: enough for its task, and nothing spare.

use std::collections::BTreeSet;

use konverge_core::digest::{DIGEST_KEY_LENGTH, DigestKey};
use konverge_testkit_stores::VaultServer;
use konverge_vault::{
    Deletion, Expected, Found, KvVersion, Login, Mount, Owner, Ownership, Vault, VaultError, Watches,
    policy::{Policy, Task},
};
use serde_json::json;

use crate::support::{SOON, config, content, credential, live, locate, server};

/// The policies that are shipped.
const OF_PUSH: &str = include_str!("../../../../deploy/vault-policy.hcl");
const OF_ROLL: &str = include_str!("../../../../deploy/vault-policy-rollout.hcl");

/// A client whose token has these rules and nothing else, not even what every token usually has.
async fn client(server: &VaultServer, rules: &str) -> Vault {
    server.policy("only", rules).await.unwrap();
    let options = json!({ "ttl": "1h", "no_default_policy": true });
    let token = server.token(&["only"], options).await.unwrap();
    Vault::new(&config(server, Login::Token(credential(&token))))
}

/// The engine in which a test works.
fn engine(version: KvVersion) -> Mount {
    Mount::new(if version == KvVersion::Two { "secret" } else { "old" }, version)
}

async fn with_engines() -> VaultServer {
    let server = server().await;
    server.mount_kv("secret", 2).await.unwrap();
    server.mount_kv("old", 1).await.unwrap();
    server
}

/// The path of a secret in an engine, as it is written on an object.
fn path(version: KvVersion, name: &str) -> String {
    if version == KvVersion::Two { format!("secret/data/{name}") } else { format!("old/{name}") }
}

/// All that push does with a path, to the end of it. It keeps the content where no deletion is named.
async fn push(vault: &Vault, version: KvVersion, name: &str, deletion: Option<Deletion>) -> Result<(), VaultError> {
    let owner = Owner {
        prefix: "vault-sync.io".to_owned(),
        name: "team-a/Secret/db".to_owned(),
        uid: "1".to_owned(),
        instance: "one".to_owned(),
    };
    let location = locate(vault, &path(version, name)).await;
    assert!(matches!(vault.read(&location).await?, Found::Absent));
    vault.write(&location, &content(&[("a", "1")]), Expected::Absent).await?;
    if version == KvVersion::Two {
        vault.annotate(&location, &owner.mark().unwrap()).await?;
        let state = live(vault, &location).await.version.unwrap();
        assert_eq!(owner.ownership(&state.custom_metadata), Ownership::Ours);
        assert!(
            vault.list(location.mount(), location.folder()).await?.iter().any(|found| found == location.base_name())
        );
        assert!(vault.metadata(&location).await?.is_some());
    }
    let expected = vault.read(&location).await?.expected();
    vault.write(&location, &content(&[("a", "2")]), expected).await?;
    if let Some(deletion) = deletion {
        vault.delete(&location, Expected::Any, deletion).await?;
        assert!(!matches!(vault.read(&location).await?, Found::Live(_)), "{deletion:?}");
    }
    if version == KvVersion::Two && deletion != Some(Deletion::Metadata) {
        vault.annotate(&location, &owner.unmark()).await?;
    }
    Ok(())
}

/// The rules of a policy: each path with its capabilities.
fn rules(policy: &str) -> Vec<(String, Vec<String>)> {
    let between = |text: &str| text.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let stanzas = policy.split("path ").skip(1).map(|stanza| {
        let (head, body) = stanza.split_once('{').unwrap();
        (between(head).remove(0), between(body.split('}').next().unwrap()))
    });
    stanzas.collect()
}

/// The policy without some capabilities of the rules for one path.
fn without(policy: &str, path: &str, capabilities: &[&str]) -> String {
    let rule = |(of, mut held): (String, Vec<String>)| {
        if of == path {
            held.retain(|capability| !capabilities.contains(&capability.as_str()));
        }
        format!("path \"{of}\" {{ capabilities = {} }}\n", json!(held))
    };
    rules(policy).into_iter().map(rule).collect()
}

/// Every way to take one capability from a policy, but for those of the token itself.
fn reductions(policy: &str) -> Vec<(String, String)> {
    let of_engines = rules(policy).into_iter().filter(|(path, _)| !path.starts_with("auth/"));
    of_engines.flat_map(|(path, held)| held.into_iter().map(move |capability| (path.clone(), capability))).collect()
}

/// The policy for push on the folder of one team.
fn of_team(version: KvVersion, deletion: Option<Deletion>) -> String {
    let mount = engine(version);
    let mut policy = Policy::default().allow_own_token();
    for task in
        [Some(Task::Write), Some(Task::Mark), Some(Task::Search), deletion.map(Task::Delete)].into_iter().flatten()
    {
        policy = policy.allow(&mount, "team-a/", task);
    }
    policy.to_string()
}

const DELETIONS: [Option<Deletion>; 4] =
    [None, Some(Deletion::Soft), Some(Deletion::Destroy), Some(Deletion::Metadata)];

#[tokio::test]
async fn the_policy_of_a_team_is_enough_for_push_reaches_no_other_team_and_has_nothing_spare() {
    let server = with_engines().await;
    let mut count = 0;
    for version in [KvVersion::Two, KvVersion::One] {
        for deletion in DELETIONS {
            let policy = of_team(version, deletion);
            let what = format!("{version:?} {deletion:?}");
            count += 1;
            let vault = client(&server, &policy).await;
            push(&vault, version, &format!("team-a/{count}"), deletion).await.unwrap();
            let other = push(&vault, version, &format!("team-b/{count}"), deletion).await;
            assert!(other.is_err(), "{what} reaches another team");
            vault.close().await;

            for (path, capability) in reductions(&policy) {
                count += 1;
                let vault = client(&server, &without(&policy, &path, &[&capability])).await;
                let outcome = push(&vault, version, &format!("team-a/{count}"), deletion).await;
                // A mark is set with patch, or else read and written.
                let replaceable = path.contains("/metadata/") && ["patch", "update"].contains(&capability.as_str());
                if replaceable {
                    outcome.unwrap_or_else(|error| panic!("{what} without {capability} on {path}: {error}"));
                } else {
                    let error = outcome.err();
                    assert!(
                        matches!(error, Some(VaultError::Denied { .. })),
                        "{what} without {capability} on {path}: {error:?}"
                    );
                }
                vault.close().await;
            }
        }
    }
    for spare in [["patch", "update"], ["patch", "read"]] {
        let policy = without(&of_team(KvVersion::Two, None), "secret/metadata/team-a/*", &spare);
        count += 1;
        let outcome = push(&client(&server, &policy).await, KvVersion::Two, &format!("team-a/{count}"), None).await;
        assert!(matches!(outcome, Err(VaultError::Denied { .. })), "without {spare:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn the_shipped_policy_of_push_is_enough_for_every_deletion_and_each_route_of_it_is_needed() {
    let server = with_engines().await;
    let every = async |vault: &Vault, folder: &str| {
        for deletion in DELETIONS {
            push(vault, KvVersion::Two, &format!("{folder}/{deletion:?}"), deletion).await?;
        }
        Ok::<_, VaultError>(())
    };
    let vault = client(&server, OF_PUSH).await;
    every(&vault, "whole").await.unwrap();
    vault.close().await;
    for route in ["data", "metadata", "destroy"] {
        let path = format!("secret/{route}/*");
        assert!(rules(OF_PUSH).iter().any(|(of, _)| *of == path), "{path}");
        let elsewhere = OF_PUSH.replace(&path, &format!("elsewhere/{route}/*"));
        let error = every(&client(&server, &elsewhere).await, route).await.err();
        assert!(matches!(error, Some(VaultError::Denied { .. })), "without {route}: {error:?}");
    }
}

/// The task of roll with a secret: it follows its versions, and reads its content where that counts.
async fn follow(vault: &Vault, version: KvVersion, reads: bool) -> Result<(), String> {
    let location = locate(vault, &path(version, "team-a/followed")).await;
    let watches = Watches::new(vault.clone(), DigestKey::new([7; DIGEST_KEY_LENGTH]));
    let mut watch = watches.watch(location.clone(), SOON);
    let known = tokio::time::timeout(SOON, watch.changed()).await.unwrap();
    known.seen.ok_or_else(|| known.failure.unwrap().to_string())?;
    if reads {
        vault.read(&location).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[tokio::test]
async fn the_policies_of_roll_are_enough_and_have_nothing_spare() {
    let server = with_engines().await;
    let administrator = crate::support::administrator(&server);
    for version in [KvVersion::Two, KvVersion::One] {
        let location = locate(&administrator, &path(version, "team-a/followed")).await;
        administrator.write(&location, &content(&[("a", "1")]), Expected::Absent).await.unwrap();
    }
    for (version, task, reads) in [
        (KvVersion::Two, Task::FollowVersions, false),
        (KvVersion::Two, Task::FollowContent, true),
        (KvVersion::One, Task::FollowVersions, false),
        (KvVersion::One, Task::FollowContent, true),
    ] {
        let policy = Policy::default().allow_own_token().allow(&engine(version), "team-a/", task).to_string();
        follow(&client(&server, &policy).await, version, reads).await.unwrap();
        for (path, capability) in reductions(&policy) {
            let less = without(&policy, &path, &[&capability]);
            let outcome = follow(&client(&server, &less).await, version, reads).await;
            // Data shows its version, too, with all the values.
            let replaceable = reads && path.contains("/metadata/");
            assert_eq!(
                outcome.is_ok(),
                replaceable,
                "{version:?} {task:?} without {capability} on {path}: {outcome:?}"
            );
        }
    }
    follow(&client(&server, OF_ROLL).await, KvVersion::Two, false).await.unwrap();
    let no_value = follow(&client(&server, OF_ROLL).await, KvVersion::Two, true).await.unwrap_err();
    assert!(no_value.contains("policy"), "{no_value}");
}

#[test]
fn the_shipped_policies_are_those_of_the_tasks() {
    let secret = engine(KvVersion::Two);
    let mut of_push = Policy::default().allow(&secret, "", Task::Write).allow(&secret, "", Task::Mark);
    of_push = of_push.allow(&secret, "", Task::Search);
    for deletion in DELETIONS.into_iter().flatten() {
        of_push = of_push.allow(&secret, "", Task::Delete(deletion));
    }
    let of_roll = Policy::default().allow(&secret, "", Task::FollowVersions);
    for (shipped, policy) in [(OF_PUSH, of_push), (OF_ROLL, of_roll)] {
        let sorted = |text: &str| rules(text).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(sorted(shipped), sorted(&policy.allow_own_token().to_string()));
    }
}

//! What an object asks for and whether it may, in words.

use konverge_kubectl::{Cluster, Fact, Failure};
use konverge_vault::{Location, Mount, SecretPath};
use kube::core::ObjectMeta;

use super::{
    followable,
    operator::{self, Operator},
    wanted,
};
use crate::{
    annotations::{Asked, DeletionPolicy, PAUSE, RECONCILE},
    boundaries::{Place, Rule, is_allowed},
    desired::Wanted,
    object::ObjectRef,
    workload::Need,
};

/// Facts about an object.
pub(super) async fn facts(cluster: &Cluster, key: &ObjectRef, metadata: &ObjectMeta) -> Vec<Fact> {
    let Some(asked) = followable(metadata) else { return Vec::new() };
    let wanted = wanted(cluster, key, &asked).await;
    let operator = operator::of_namespace(cluster, &key.namespace).await;
    let mut facts = Vec::new();
    match &wanted {
        Ok(wanted) => facts.push(Fact::new("asks for", wish(&asked, wanted))),
        Err(failure) => facts.push(Fact::new("asks for", format!("{}; {failure}", asked.path))),
    }
    facts.extend(asked.notes.iter().map(|note| Fact::new("note", note.clone())));
    facts.push(Fact::new("may", may(key, &asked, wanted.as_ref().ok(), operator.as_ref())));
    facts.push(Fact::new("compared", compared(&asked)));
    facts.push(Fact::new("in the end", farewell(&asked, operator.as_ref().ok().and_then(Option::as_ref))));
    facts.push(Fact::new("paused", if asked.paused { format!("yes, by {PAUSE}") } else { "no".to_owned() }));
    facts
}

fn wish(asked: &Asked, wanted: &Wanted) -> String {
    let path = &asked.path;
    match wanted {
        Wanted::Whole(_) => format!("all its keys, at {path}"),
        Wanted::Each(names) if names.is_empty() => "nothing: its pods use no Secret".to_owned(),
        Wanted::Each(names) => {
            let name = |(name, need): (&String, &Need)| match need {
                Need::Required => name.clone(),
                Need::Optional => format!("{name} (optional)"),
            };
            format!(
                "each Secret that its pods use, beneath {path}: {}",
                names.iter().map(name).collect::<Vec<_>>().join(", ")
            )
        }
        Wanted::Chosen(choices) => {
            let choice = |choice: &crate::annotations::Choice| {
                let prefix = if choice.prefix.is_empty() { String::new() } else { format!(" as {}…", choice.prefix) };
                format!("{} of {}{prefix}", choice.keys.join(", "), choice.name)
            };
            format!("{}; together at {path}", choices.iter().map(choice).collect::<Vec<_>>().join("; "))
        }
    }
}

/// Whether the rules of the operator allow it, as far as they can be read.
fn may(
    key: &ObjectRef,
    asked: &Asked,
    wanted: Option<&Wanted>,
    operator: Result<&Option<Operator>, &Failure>,
) -> String {
    let operator = match operator {
        Ok(Some(operator)) => operator,
        Ok(None) => {
            return "not known: there is no Deployment of the operator that could be read for its rules".to_owned();
        }
        Err(failure) => return format!("not known: {failure}"),
    };
    let whose = format!("{}/{}", operator.installation.namespace, operator.installation.name);
    let rules = &operator.config.allow_path;
    if rules.is_empty() {
        return format!("yes; {whose} has no --allow-path and so allows all");
    }
    let Some(wanted) = wanted else { return "not known".to_owned() };
    let place = Place { namespace: &key.namespace, name: &key.name, cluster: operator.config.cluster() };
    let mut allowing: Vec<String> = Vec::new();
    for target in wanted.targets() {
        let Some(location) = location(asked, operator.config.cluster(), target) else {
            return "no: that is no path".to_owned();
        };
        let rule: Option<&Rule> = rules.iter().find(|rule| is_allowed(std::slice::from_ref(*rule), &place, &location));
        match rule.map(ToString::to_string) {
            Some(rule) if allowing.contains(&rule) => {}
            Some(rule) => allowing.push(rule),
            None => return format!("no: none of the rules of {whose} allows {location}"),
        }
    }
    if allowing.is_empty() {
        return "there is nothing to be allowed".to_owned();
    }
    format!("yes, by {} of {whose}", allowing.join(" and "))
}

/// Where a path leads, as far as that can be told without Vault: an engine `secret` or one with `data/` in the path is of version 2.
fn location(asked: &Asked, cluster: Option<&str>, target: &str) -> Option<Location> {
    let path = path(asked, cluster, target)?;
    let mount = asked.mount.clone().unwrap_or_else(|| Mount::guess(&path));
    mount.location(&path).ok()
}

/// The path of one of the targets of an object, as it is asked of Vault.
pub(super) fn path(asked: &Asked, cluster: Option<&str>, target: &str) -> Option<SecretPath> {
    let base = match cluster {
        Some(cluster) => format!("clusters/{cluster}/{}", asked.path),
        None => asked.path.clone(),
    };
    let base = SecretPath::parse(&base).ok()?;
    if target.is_empty() { Some(base) } else { base.join(target).ok() }
}

fn compared(asked: &Asked) -> String {
    match (asked.always, asked.every) {
        (true, _) => "with Vault at each look".to_owned(),
        (false, Some(every)) => {
            format!("with Vault every {} seconds, besides each change in the cluster", every.as_secs())
        }
        (false, None) => {
            format!("when something changes in the cluster; {RECONCILE} would have it compared from time to time")
        }
    }
}

fn farewell(asked: &Asked, operator: Option<&Operator>) -> String {
    let policy = asked.deletion.or(operator.map(|operator| operator.config.default_deletion_policy));
    let text = match policy {
        Some(DeletionPolicy::Soft) => {
            "the newest version is deleted in Vault; older ones stay readable by their number"
        }
        Some(DeletionPolicy::Destroy) => "the data of all versions are destroyed in Vault",
        Some(DeletionPolicy::Metadata) => "all of it is removed from Vault",
        Some(DeletionPolicy::Keep) => "it stays in Vault",
        None => return "as --default-deletion-policy of the operator says".to_owned(),
    };
    format!("{text} ({})", policy.map(|policy| policy.to_string()).unwrap_or_default())
}

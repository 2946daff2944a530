//! The request of an object, and whether the rules allow it, in words.

use konverge_core::names::few;
use konverge_kubectl::{Cluster, Fact, Failure, Installed, operator_of};
use konverge_vault::{
    Location, Mount,
    boundaries::{Place, Rule, is_allowed},
};
use konverge_workload::Need;
use kube::core::DynamicObject;

use super::{health::record_of, spec_of, wanted};
use crate::{
    annotations::{PAUSE, RECONCILE},
    bindings::Push,
    config::Config,
    desired::Wanted,
    object::{Kind, ObjectRef},
    record::{Record, SYNCED},
    spec::{Choice, DeletionPolicy, PushSpec, UpdatePolicy},
};

/// Facts about an object.
pub(super) async fn facts(cluster: &Cluster, key: &ObjectRef, object: &DynamicObject) -> Vec<Fact> {
    let Some(Ok(spec)) = spec_of(key, object) else { return Vec::new() };
    let wanted = wanted(cluster, key, object, &spec).await;
    let operator = operator_of(&super::Push, cluster, &key.namespace).await;
    let mut facts = Vec::new();
    let push = wanted.map(|wanted| Push { spec: spec.clone(), wanted });
    match &push {
        Ok(push) => facts.push(Fact::new("requests", description(push))),
        Err(failure) => facts.push(Fact::new("requests", format!("{}; {failure}", spec.path))),
    }
    facts.extend(spec.notes.iter().map(|note| Fact::new("note", note.clone())));
    facts.push(Fact::new("allowed", may(key, push.as_ref().ok(), operator.as_ref())));
    match spec.update {
        UpdatePolicy::Replace => {}
        UpdatePolicy::Merge => facts.push(Fact::new("written", "its own keys; those of others stay".to_owned())),
        UpdatePolicy::IfNotExists => facts.push(Fact::new("written", "only where Vault has nothing yet".to_owned())),
    }
    facts.push(Fact::new("compared", compared(key.kind, &spec)));
    if let Some(Record { state, verified: Some(verified), .. }) = record_of(object) {
        let what = if state == SYNCED { "all of it" } else { "all of it that is not named as wrong" };
        facts.push(Fact::new("in Vault", format!("{what} at {verified}, by the record on the object")));
    }
    facts.push(Fact::new("in the end", deletion(&spec, operator.as_ref().ok().and_then(Option::as_ref))));
    facts.push(Fact::new(
        "paused",
        if spec.paused { format!("yes, by {}", key.kind.setting(PAUSE)) } else { "no".to_owned() },
    ));
    facts
}

fn description(push: &Push) -> String {
    let path = &push.spec.path;
    match &push.wanted {
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
            let choice = |choice: &Choice| {
                let prefix = if choice.prefix.is_empty() { String::new() } else { format!(" as {}…", choice.prefix) };
                format!("{} of {}{prefix}", choice.keys.join(", "), choice.name)
            };
            format!("{}; together at {path}", choices.iter().map(choice).collect::<Vec<_>>().join("; "))
        }
        Wanted::Composed(composition) => {
            let names: Vec<_> = composition.names().into_iter().map(str::to_owned).collect();
            let names = if names.is_empty() { "no Secret that fits".to_owned() } else { few(&names) };
            format!("{names}; at {path}")
        }
    }
}

/// Whether the rules of the operator allow it, as far as they can be read.
fn may(key: &ObjectRef, push: Option<&Push>, operator: Result<&Option<Installed<Config>>, &Failure>) -> String {
    let operator = match operator {
        Ok(Some(operator)) => operator,
        Ok(None) => {
            return "not known: no Deployment of the operator was found whose rules could be read".to_owned();
        }
        Err(failure) => return format!("not known: {failure}"),
    };
    let whose = format!("{}/{}", operator.installation.namespace, operator.installation.name);
    let options = &operator.config.push;
    let rules = &options.allow_path;
    if rules.is_empty() {
        return format!("yes; {whose} has no --allow-path and so allows all");
    }
    let Some(push) = push else { return "not known".to_owned() };
    let place = Place { namespace: &key.namespace, name: &key.name, cluster: options.cluster() };
    let mut allowing: Vec<String> = Vec::new();
    for target in push.wanted.targets() {
        let Some(location) = location(push, &options.prefix(), target) else {
            return "no: that is not a path".to_owned();
        };
        let rule: Option<&Rule> = rules.iter().find(|rule| is_allowed(std::slice::from_ref(*rule), &place, &location));
        match rule.map(ToString::to_string) {
            Some(rule) if allowing.contains(&rule) => {}
            Some(rule) => allowing.push(rule),
            None => return format!("no: none of the rules of {whose} allows {location}"),
        }
    }
    if allowing.is_empty() {
        return "it requests no path".to_owned();
    }
    format!("yes, by {} of {whose}", allowing.join(" and "))
}

/// Returns the location of a path without asking Vault: an engine `secret`, or one with `data/` in the path, counts as version 2.
fn location(push: &Push, prefix: &str, target: &str) -> Option<Location> {
    let path = push.path(prefix, target).ok()?;
    let mount = push.spec.engine.claimed(prefix).unwrap_or_else(|| Mount::guess(&path));
    let path = push.spec.engine.in_data(&mount, path).ok()?;
    mount.location(&path).ok()
}

fn compared(kind: Kind, spec: &PushSpec) -> String {
    match (spec.always, spec.every) {
        (true, _) => "with Vault at each run".to_owned(),
        (false, Some(every)) => {
            format!("with Vault every {} seconds, and at each change in the cluster", every.as_secs())
        }
        (false, None) => {
            let setting = kind.setting(RECONCILE);
            format!("at each change in the cluster; {setting} sets an interval")
        }
    }
}

fn deletion(spec: &PushSpec, operator: Option<&Installed<Config>>) -> String {
    let policy = spec.deletion.or(operator.map(|operator| operator.config.push.default_deletion_policy));
    let text = match policy {
        Some(DeletionPolicy::Soft | DeletionPolicy::Destroy | DeletionPolicy::Metadata)
            if spec.update == UpdatePolicy::Merge =>
        {
            "its own keys are removed from the path; a path without other keys is deleted"
        }
        Some(DeletionPolicy::Soft) => {
            "the newest version is deleted in Vault; older ones stay readable by their number"
        }
        Some(DeletionPolicy::Destroy) => "the data of all versions are destroyed in Vault",
        Some(DeletionPolicy::Metadata) => "all of it is removed from Vault",
        Some(DeletionPolicy::Keep) => "it stays in Vault",
        None => return "by --default-deletion-policy of the operator".to_owned(),
    };
    format!("{text} ({})", policy.map(|policy| policy.to_string()).unwrap_or_default())
}

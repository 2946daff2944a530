//! The difference between the desired content and the content of Vault, by the names of keys.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::ledger::{CLUSTER_NAMESPACE, cluster_uid};
use konverge_core::error::in_one_line;
use konverge_kubectl::{Change, Cluster, Difference, Failure, Installed, Permission, PlannedChange, operator_of};
use konverge_vault::{Content, Deletion, Found, Location, Owner, Vault, VaultError};
use kube::{Api, core::DynamicObject};

use super::{health::record_of, spec_of, vault, wanted};
use crate::{
    bindings::Push,
    config::Config,
    content::{Lack, Made, Sources, Target},
    desired::desired,
    merge::{merge, remove_keys},
    messages,
    object::ObjectRef,
    plan::{Claim, DeletionPlan, Known, Step, plan, plan_deletion, plan_once},
    record::{Record, Written},
    secrets,
    spec::{BinaryPolicy, ExistingPolicy, PushSpec, UpdatePolicy},
    store::{locate, owner, recorded},
};

/// Returns each path that the object requests, and each recorded path that it no longer requests.
pub(super) async fn differences(
    cluster: &Cluster,
    key: &ObjectRef,
    object: &DynamicObject,
) -> Result<Vec<Difference>, Failure> {
    let spec = spec_of(key, object).transpose();
    let spec = spec.map_err(|invalid| Failure::Failed(messages::invalid(&invalid).text))?;
    let record = record_of(object);
    let vault = vault::own()?;
    let operator = operator_of(&super::Push, cluster, &key.namespace).await.unwrap_or_else(|failure| {
        eprintln!("warning: the operator's settings count as the defaults: {failure}");
        None
    });
    let config = operator.as_ref().map(|operator| &operator.config);
    let instance = instance(cluster, operator.as_ref()).await?;
    let owner = owner(key, object.metadata.uid.as_deref().unwrap_or_default(), &instance);
    let side = Side { cluster, key, record: record.as_ref(), vault: &vault, owner, config };
    let mut found = match spec {
        Some(spec) => side.requested(object, spec).await?,
        None => Vec::new(),
    };
    for (location, written) in record.iter().flat_map(Record::locations) {
        let Some(location) = recorded(&vault, &location).await.map_err(|error| refused(&error))? else { continue };
        if !found.iter().any(|known| known.path == location.to_string()) {
            let deletion = record.as_ref().and_then(|record| record.deletion.in_vault());
            found.push(side.dropped(&location, written, deletion).await?);
        }
    }
    Ok(found)
}

/// Returns the instance in the operator's marks: `--instance`, else the uid of the cluster, or `SOME_INSTANCE` where the operator cannot know
/// that.
async fn instance(cluster: &Cluster, operator: Option<&Installed<Config>>) -> Result<String, Failure> {
    if let Some(given) = operator.and_then(|operator| operator.config.push.instance.clone()) {
        return Ok(given);
    }
    if let Some(operator) = operator {
        let needed = Permission::new("", "namespaces", "get").on(CLUSTER_NAMESPACE);
        // Where that cannot be asked, it counts as what the role that is shipped allows.
        let lacking = cluster.lacking(&operator.installation, vec![needed]).await.unwrap_or_default();
        if !lacking.is_empty() {
            return Ok(Owner::SOME_INSTANCE.to_owned());
        }
    }
    match cluster_uid(&cluster.client).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Owner::SOME_INSTANCE.to_owned()),
        Err(error) => {
            let act = format!("get namespace {CLUSTER_NAMESPACE}, whose uid tells this cluster's marks in Vault");
            let failure = Failure::of(&act, &error);
            Err(Failure::Failed(format!(
                "cannot tell whose a path is: {failure}; be allowed to get it, or have the operator started with --instance"
            )))
        }
        Ok(uid) => Ok(uid),
    }
}

/// The two sides of the comparison: the object with its record, and Vault as the operator would see it.
struct Side<'a> {
    cluster: &'a Cluster,
    key: &'a ObjectRef,
    record: Option<&'a Record>,
    vault: &'a Vault,
    owner: Owner,
    config: Option<&'a Config>,
}

impl Side<'_> {
    /// The planned change of each path that the object requests.
    async fn requested(&self, object: &DynamicObject, spec: PushSpec) -> Result<Vec<Difference>, Failure> {
        let Self { cluster, key, vault, config, .. } = self;
        let wanted = wanted(cluster, key, object, &spec).await?;
        let push = Push { spec, wanted };
        let sources = sources(cluster, &key.namespace, &push.wanted.names()).await?;
        let binary = push.spec.binary.or(config.map(|config| config.push.binary)).unwrap_or(BinaryPolicy::Base64);
        let prefix = config.map(|config| config.push.prefix()).unwrap_or_default();
        let mut found = Vec::new();
        for (beneath, target) in desired(&push.wanted, &sources, binary) {
            let location = locate(vault, &push, &prefix, &beneath).await.map_err(|error| refused(&error))?;
            found.push(match target {
                Target::Content(made) => self.one(&location, &made, &push.spec).await?,
                Target::Keep(lack) => self.lacking(&location, &lack),
            });
        }
        Ok(found)
    }

    async fn read(&self, location: &Location) -> Result<Found, Failure> {
        self.vault.read(location).await.map_err(|error| refused(&error))
    }

    /// The planned change of a path that the object no longer requests.
    async fn dropped(
        &self,
        location: &Location,
        written: &Written,
        deletion: Option<Deletion>,
    ) -> Result<Difference, Failure> {
        let found = self.read(location).await?;
        let held = content(&found);
        let (planned, keys, why) = match (deletion, &written.keys) {
            (None, _) => {
                (PlannedChange::Same, Vec::new(), "it is no longer requested, and stays as the policy keep says")
            }
            (Some(_), Some(keys)) => {
                let is_there = |key: &&String| held.is_some_and(|held| held.get(key).is_some());
                let keys: Vec<String> = keys.iter().filter(is_there).cloned().collect();
                match remove_keys(found, &self.owner, written, None, false, &BTreeMap::new()).content {
                    None => {
                        (PlannedChange::Same, Vec::new(), "it is no longer requested, and holds no key of this object")
                    }
                    Some(left) if left.is_empty() => (PlannedChange::Cleared, keys, "it is no longer requested"),
                    Some(_) => (PlannedChange::Changed, keys, "it is no longer requested; keys of others stay"),
                }
            }
            (Some(deletion), None) => {
                match plan_deletion(&found, &self.owner, Claim::recorded(written), None, deletion) {
                    DeletionPlan::Delete => {
                        let keys = held.iter().flat_map(|held| held.keys()).map(str::to_owned).collect();
                        (PlannedChange::Cleared, keys, "it is no longer requested")
                    }
                    DeletionPlan::Forget | DeletionPlan::Report | DeletionPlan::Unmark => {
                        (PlannedChange::Same, Vec::new(), "it is no longer requested, and holds nothing of this object")
                    }
                }
            }
        };
        let keys = keys.into_iter().map(|key| (key, Change::Removed)).collect();
        Ok(Difference { path: location.to_string(), planned, note: Some(why.to_owned()), keys })
    }

    fn lacking(&self, location: &Location, lack: &Lack) -> Difference {
        let path = location.to_string();
        // That a Secret is missing which the pods can do without is in sync.
        let planned =
            if matches!(lack, Lack::Secret { optional: true, .. }) { PlannedChange::Same } else { PlannedChange::Left };
        let note = Some(messages::lacking(self.key.kind, &path, lack).text);
        Difference { path, planned, note, keys: BTreeMap::new() }
    }

    /// The planned change of a path with this content.
    async fn one(&self, location: &Location, made: &Made, spec: &PushSpec) -> Result<Difference, Failure> {
        let path = location.to_string();
        let update = spec.update;
        let existing = spec.existing.or(self.config.map(|config| config.push.existing));
        let existing = existing.unwrap_or(ExistingPolicy::Adopt);
        let written = self.record.and_then(|record| record.paths.get(&path));
        let found = self.read(location).await?;
        let mut keys = changes(&made.content, content(&found));
        let is_there = matches!(found, Found::Live(_));
        let claim = Claim::of(update, written);
        let (own, owner) = (&made.content, &self.owner);
        let step = match update {
            UpdatePolicy::Replace => plan(own, &found, owner, claim, existing, Known::Changed),
            UpdatePolicy::IfNotExists => plan_once(own, &found, owner, claim),
            UpdatePolicy::Merge => {
                let recorded = written.cloned().unwrap_or_else(|| Written::intended(location));
                keys.retain(|key, change| {
                    *change != Change::Removed || recorded.keys.as_ref().is_some_and(|keys| keys.contains(key))
                });
                merge(own, found, owner, &recorded, existing).map(|merge| match merge.content {
                    None if merge.marks.is_empty() => Step::Nothing,
                    None => Step::Mark,
                    Some(_) => Step::Write { expected: merge.expected, mark: false, adopted: false, drifted: false },
                })
            }
        };
        let (planned, note) = match step {
            Err(refusal) => (PlannedChange::Left, Some(messages::refused(self.key.kind, &path, &refusal).text)),
            Ok(Step::Nothing) => (PlannedChange::Same, None),
            Ok(Step::Wait(_)) => (PlannedChange::Left, Some(messages::awaited(&path).text)),
            Ok(Step::Mark) => (PlannedChange::Same, Some("it would be marked as this object's".to_owned())),
            Ok(Step::Leave { ours, .. }) => (PlannedChange::Same, Some(messages::left_alone(&path, ours).text)),
            Ok(Step::Write { .. }) if !is_there => (PlannedChange::Created, None),
            Ok(Step::Write { .. }) => (PlannedChange::Changed, None),
        };
        Ok(Difference { path, planned, note, keys })
    }
}

/// The planned change of each key. It contains no value.
fn changes(wanted: &Content, held: Option<&Content>) -> BTreeMap<String, Change> {
    let before = |key: &str| held.and_then(|held| held.get(key));
    let mut changes: BTreeMap<String, Change> = wanted
        .iter()
        .map(|(key, field)| {
            let change = match before(key) {
                None => Change::Added,
                Some(held) if held == field => Change::Same,
                Some(_) => Change::Changed,
            };
            (key.to_owned(), change)
        })
        .collect();
    for key in held.iter().flat_map(|held| held.keys()) {
        changes.entry(key.to_owned()).or_insert(Change::Removed);
    }
    changes
}

fn content(found: &Found) -> Option<&Content> {
    match found {
        Found::Live(secret) => Some(&secret.content),
        Found::Absent | Found::Deleted(_) => None,
    }
}

/// The Secrets, each read once.
async fn sources(cluster: &Cluster, namespace: &str, names: &BTreeSet<&str>) -> Result<Sources, Failure> {
    let api = Api::<Secret>::namespaced(cluster.client.clone(), namespace);
    let mut sources = Sources::new();
    for name in names {
        let act = format!("get secret {name} in namespace {namespace}, whose values are to be compared");
        let secret = api.get_opt(name).await.map_err(|error| Failure::of(&act, &error))?;
        sources.insert((*name).to_owned(), secret.map(secrets::values));
    }
    Ok(sources)
}

fn refused(error: &VaultError) -> Failure {
    Failure::Failed(format!("cannot compare with Vault: {}", in_one_line(error)))
}

#[cfg(test)]
mod tests {
    use konverge_core::SecretValue;

    use super::*;

    fn content(fields: &[(&str, &str)]) -> Content {
        let mut content = Content::new();
        for (key, value) in fields {
            content.insert(*key, SecretValue::from((*value).to_owned()));
        }
        content
    }

    #[test]
    fn keys_and_what_becomes_of_them() {
        let wanted = content(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let held = content(&[("b", "2"), ("c", "4"), ("d", "5")]);
        let expected = [("a", Change::Added), ("b", Change::Same), ("c", Change::Changed), ("d", Change::Removed)];
        let expected: BTreeMap<_, _> = expected.into_iter().map(|(key, change)| (key.to_owned(), change)).collect();
        assert_eq!(changes(&wanted, Some(&held)), expected);
        assert!(changes(&wanted, None).values().all(|change| *change == Change::Added));
    }
}

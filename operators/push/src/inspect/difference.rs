//! What would be written from the cluster now, against what Vault holds: by the names of keys.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Namespace, Secret};
use konverge_core::{SecretValue, error::in_one_line};
use konverge_kubectl::{Change, Cluster, Difference, Failure, Fate};
use konverge_vault::{Content, Deletion, Found, Location, Owner, Vault, VaultError};
use kube::{Api, core::ObjectMeta};

use super::{explain::path, followable, operator, standing, vault, wanted};
use crate::{
    annotations::{Asked, BinaryPolicy, ExistingPolicy, asked},
    config::Config,
    desired::{Lack, Sources, Target, desired},
    messages::Message,
    object::ObjectRef,
    plan::{Claim, Farewell, Known, Refusal, Step, farewell, plan},
    reconcile::vault_deletion,
    record::Record,
    run::CLUSTER_IDENTITY,
    store::owner,
};

/// Each path that the object asks for, and each that is recorded and not asked for any more.
pub(super) async fn differences(
    cluster: &Cluster,
    key: &ObjectRef,
    metadata: &ObjectMeta,
) -> Result<Vec<Difference>, Failure> {
    if let Some(Err(invalid)) = metadata.annotations.as_ref().and_then(asked) {
        return Err(Failure::Failed(Message::invalid(&invalid).text));
    }
    let record = standing::record(metadata);
    let vault = vault::own()?;
    let operator = operator::of_namespace(cluster, &key.namespace).await.unwrap_or_else(|failure| {
        eprintln!("warning: the operator's settings count as the defaults: {failure}");
        None
    });
    let config = operator.as_ref().map(|operator| &operator.config);
    let instance = match config.and_then(|config| config.instance.clone()) {
        Some(instance) => instance,
        None => identity(cluster).await,
    };
    let owner = owner(key, metadata.uid.as_deref().unwrap_or_default(), &instance);
    let mut found = match followable(metadata) {
        Some(asked) => asked_for(cluster, key, &asked, config, &vault, &owner, record.as_ref()).await?,
        None => Vec::new(),
    };
    for (location, written) in record.iter().flat_map(Record::locations) {
        if !found.iter().any(|known| known.path == location.to_string()) {
            let deletion = record.as_ref().and_then(|record| vault_deletion(record.deletion));
            let claim = if written.written { Claim::Written } else { Claim::Intended };
            found.push(dropped(&vault, &location, &owner, claim, deletion).await?);
        }
    }
    Ok(found)
}

async fn asked_for(
    cluster: &Cluster,
    key: &ObjectRef,
    asked: &Asked,
    config: Option<&Config>,
    vault: &Vault,
    owner: &Owner,
    record: Option<&Record>,
) -> Result<Vec<Difference>, Failure> {
    let wanted = wanted(cluster, key, asked).await?;
    let sources = sources(cluster, &key.namespace, &wanted.names()).await?;
    let binary = asked.binary.or(config.map(|config| config.binary)).unwrap_or(BinaryPolicy::Base64);
    let existing = asked.existing.or(config.map(|config| config.existing)).unwrap_or(ExistingPolicy::Adopt);
    let mut found = Vec::new();
    for (beneath, target) in desired(&wanted, &sources, binary) {
        let path = path(asked, config.and_then(Config::cluster), &beneath);
        let Some(path) = path else { return Err(Failure::Failed(format!("{:?} is no path in Vault", asked.path))) };
        let location = match &asked.mount {
            Some(mount) => mount.location(&path).map_err(|error| refused(&VaultError::Path(error)))?,
            None => vault.locate(&path).await.map_err(|error| refused(&error))?,
        };
        found.push(one(vault, &location, target, owner, claim(record, &location), existing).await?);
    }
    Ok(found)
}

/// What becomes of a path that is not asked for any more.
async fn dropped(
    vault: &Vault,
    location: &Location,
    owner: &Owner,
    claim: Claim,
    deletion: Option<Deletion>,
) -> Result<Difference, Failure> {
    let found = vault.read(location).await.map_err(|error| refused(&error))?;
    let (fate, why) = match deletion.map(|deletion| farewell(&found, owner, claim, None, deletion)) {
        Some(Farewell::Delete) => (Fate::Cleared, "it is not asked for any more"),
        Some(Farewell::Forget | Farewell::Unmark) => {
            (Fate::Same, "it is not asked for any more, and holds nothing of this object")
        }
        None => (Fate::Same, "it is not asked for any more, and stays as the policy keep says"),
    };
    let held = content(found).filter(|_| fate == Fate::Cleared);
    let keys = held.iter().flat_map(Content::keys).map(|key| (key.to_owned(), Change::Removed)).collect();
    Ok(Difference { path: location.to_string(), fate, note: Some(why.to_owned()), keys })
}

async fn one(
    vault: &Vault,
    location: &Location,
    target: Target,
    owner: &Owner,
    claim: Claim,
    existing: ExistingPolicy,
) -> Result<Difference, Failure> {
    let path = location.to_string();
    let made = match target {
        Target::Content(made) => made,
        Target::Keep(lack) => {
            // That a Secret is missing which the pods can do without is as it should be.
            let fate = if matches!(lack, Lack::Secret { optional: true, .. }) { Fate::Same } else { Fate::Left };
            let note = Some(Message::lacking(&path, &lack).text);
            return Ok(Difference { path, fate, note, keys: BTreeMap::new() });
        }
    };
    let found = vault.read(location).await.map_err(|error| refused(&error))?;
    let step = plan(&made.content, &found, owner, claim, existing, Known::Changed);
    let is_there = matches!(found, Found::Live(_));
    let keys = changes(&made.content, content(found).as_ref());
    let (fate, note) = match step {
        Err(refusal @ (Refusal::Foreign(_) | Refusal::Existing)) => {
            (Fate::Left, Some(Message::refused(&path, &refusal).text))
        }
        Ok(Step::Nothing) => (Fate::Same, None),
        Ok(Step::Mark) => (Fate::Same, Some("it would be marked as this object's".to_owned())),
        Ok(Step::Write { .. }) if !is_there => (Fate::Created, None),
        Ok(Step::Write { .. }) => (Fate::Changed, None),
    };
    Ok(Difference { path, fate, note, keys })
}

/// What becomes of each key. Nothing of a value leaves this.
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

fn content(found: Found) -> Option<Content> {
    match found {
        Found::Live(secret) => Some(secret.content),
        Found::Absent | Found::Deleted(_) => None,
    }
}

fn claim(record: Option<&Record>, location: &Location) -> Claim {
    match record.and_then(|record| record.paths.get(&location.to_string())) {
        None => Claim::New,
        Some(written) if written.written => Claim::Written,
        Some(_) => Claim::Intended,
    }
}

/// The Secrets, each read once.
async fn sources(cluster: &Cluster, namespace: &str, names: &BTreeSet<&str>) -> Result<Sources, Failure> {
    let api = Api::<Secret>::namespaced(cluster.client.clone(), namespace);
    let mut sources = Sources::new();
    for name in names {
        let act = format!("get secret {name} in namespace {namespace}, of which values would be compared");
        let secret = api.get_opt(name).await.map_err(|error| Failure::of(&act, &error))?;
        let data = secret.map(|secret| {
            let data = secret.data.unwrap_or_default().into_iter();
            data.map(|(key, value)| (key, SecretValue::new(value.0))).collect()
        });
        sources.insert((*name).to_owned(), data);
    }
    Ok(sources)
}

/// What tells this cluster from others in marks, as the operator finds it out.
async fn identity(cluster: &Cluster) -> String {
    let found = Api::<Namespace>::all(cluster.client.clone()).get_metadata(CLUSTER_IDENTITY).await;
    found.ok().and_then(|namespace| namespace.metadata.uid).unwrap_or_else(|| Owner::SOME_INSTANCE.to_owned())
}

fn refused(error: &VaultError) -> Failure {
    Failure::Failed(format!("cannot compare with Vault: {}", in_one_line(error)))
}

#[cfg(test)]
mod tests {
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

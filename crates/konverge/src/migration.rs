//! Migration of stored objects: after the stored version of a kind has changed, each object is written anew, and then the old version
//! is dropped from the definition's `status.storedVersions`.
//!
//! Objects are stored in the version that was the stored one when they were written last. A definition can lose a version only when
//! no object is stored in it any more, and only its status tells that. So the old version is dropped if, and only if, every object that
//! was there after the change has been written since, and the definition has not changed meanwhile.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::rbac::v1::PolicyRule, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use konverge_apply::read;
use konverge_core::{backoff::Backoff, error::in_one_line};
use konverge_gen::Access;
use konverge_runtime::Manager;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use crate::error::Error;

/// Pure bookkeeping takes no more of the API server than this many requests in a second.
const OBJECTS_PER_SECOND: u32 = 20;
/// For how long a definition has to be unchanged. API servers learn of a change through watches, each for itself, and one that has not
/// would store in the old version.
const UNCHANGED_FOR: Duration = Duration::from_secs(10);
/// How often the definition is looked at when there is nothing to do.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// After a failure.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), factor: 2.0, cap: Duration::from_secs(120) };
/// The word of errors.
const INCOMPLETE: &str = "MigrationIncomplete";

/// Declares the access that migrating the objects of this definition needs.
pub(crate) fn declare(definition: &CustomResourceDefinition, access: &mut Access) {
    let spec = &definition.spec;
    access.to_resource(&spec.group, &spec.names.plural, &["list", "patch"]);
    let rule = |resource: &str, verb: &str| PolicyRule {
        api_groups: Some(vec!["apiextensions.k8s.io".to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(vec![definition.name_any()]),
        verbs: vec![verb.to_owned()],
        ..PolicyRule::default()
    };
    access.rules_of([rule("customresourcedefinitions", "get"), rule("customresourcedefinitions/status", "patch")]);
}

/// Lets the leader migrate whenever there is something to migrate. A check that warns says what stands in the way.
pub(crate) fn install(definition: &CustomResourceDefinition, client: &Client, manager: &mut Manager) {
    let name = definition.name_any();
    let state = Arc::new(Mutex::new(Ok(())));
    let seen = Arc::clone(&state);
    manager.checks().warning(format!("storage migration of {name}"), move || {
        seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    });
    let client = client.clone();
    manager.leader_task(format!("storage migration of {name}"), async move {
        let mut failures = 0;
        loop {
            let outcome = migrate(&client, &name).await;
            let pause = match &outcome {
                Ok(()) => {
                    failures = 0;
                    LOOK_AGAIN.mul_f64(0.9 + 0.2 * rand::random::<f64>())
                }
                Err(error) => {
                    failures += 1;
                    let pause = BACKOFF.delay(failures, rand::random());
                    tracing::warn!(definition = name, error = %in_one_line(error), retry_after = ?pause, "cannot migrate stored objects");
                    pause
                }
            };
            *state.lock().unwrap_or_else(PoisonError::into_inner) = outcome.map_err(|error| in_one_line(&error));
            sleep(pause).await;
        }
    });
}

/// The next step for a definition.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// All objects are stored in the stored version.
    Nothing,
    /// Objects may be stored in these other versions.
    Migrate { stored: String, old: Vec<String> },
}

fn plan(definition: &CustomResourceDefinition) -> Plan {
    let stored = definition.spec.versions.iter().find(|version| version.storage).map(|version| version.name.clone());
    let status = definition.status.iter().flat_map(|status| status.stored_versions.iter().flatten());
    let old: Vec<String> = status.filter(|version| Some(*version) != stored.as_ref()).cloned().collect();
    match stored {
        Some(stored) if !old.is_empty() => Plan::Migrate { stored, old },
        _ => Plan::Nothing,
    }
}

/// The patch that drops the old versions. Fails with a conflict if the definition has changed since it was read.
fn drop_old_versions(now: &CustomResourceDefinition, stored: &str) -> serde_json::Value {
    json!({
        "metadata": { "resourceVersion": now.metadata.resource_version },
        "status": { "storedVersions": [stored] },
    })
}

async fn migrate(client: &Client, name: &str) -> Result<(), Error> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    // A definition that is not installed yet has no objects.
    let Some(mut before) = definitions.get_opt(name).await? else { return Ok(()) };
    let Plan::Migrate { stored, old } = plan(&before) else { return Ok(()) };
    loop {
        sleep(UNCHANGED_FOR).await;
        let now = definitions.get(name).await?;
        if now.metadata.generation == before.metadata.generation {
            break;
        }
        before = now;
    }
    if plan(&before) != (Plan::Migrate { stored: stored.clone(), old: old.clone() }) {
        return Err(Error::transient(INCOMPLETE, format!("{name} has changed; it is looked at again")));
    }
    tracing::info!(definition = name, stored, ?old, "migrating stored objects");
    let rewritten = rewrite_all(client, &before, &stored).await?;
    let now = definitions.get(name).await?;
    if (now.metadata.generation, now.uid()) != (before.metadata.generation, before.uid()) {
        let message = format!("{name} has changed while its objects were migrated; they are migrated again");
        return Err(Error::transient(INCOMPLETE, message));
    }
    definitions.patch_status(name, &PatchParams::default(), &Patch::Merge(drop_old_versions(&now, &stored))).await?;
    tracing::info!(
        definition = name,
        stored,
        ?old,
        objects = rewritten,
        "all objects are stored in the stored version"
    );
    Ok(())
}

/// Writes every object anew. Fails, after it has tried all of them, if one could not be written.
async fn rewrite_all(client: &Client, definition: &CustomResourceDefinition, stored: &str) -> Result<usize, Error> {
    let spec = &definition.spec;
    let kind = GroupVersionKind::gvk(&spec.group, stored, &spec.names.kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
    let all = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let is_namespaced = spec.scope == "Namespaced";
    // All names first: the pages of a list expire within minutes, and writing takes longer.
    let objects = read::pick(&all, &ListParams::default(), Some).await?;
    let pause = Duration::from_secs(1) / OBJECTS_PER_SECOND;
    let (mut next, mut failed, mut first_failure) = (Instant::now(), 0_usize, None);
    for object in &objects {
        sleep_until(next).await;
        next = Instant::now() + pause;
        let name = object.name_any();
        let api = match object.namespace() {
            Some(namespace) if is_namespaced => Api::namespaced_with(client.clone(), &namespace, &resource),
            _ => all.clone(),
        };
        // Changes nothing, so the API server writes only what is stored in another version.
        let metadata = json!({ "uid": object.uid(), "resourceVersion": object.resource_version() });
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        match api.patch_metadata(&name, &PatchParams::default(), &patch).await {
            Ok(_) => {}
            // It is gone, or somebody has written it since the list, which stored it anew.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
            Err(error) => {
                failed += 1;
                tracing::warn!(
                    error = %in_one_line(&error),
                    name,
                    namespace = object.namespace(),
                    kind = kind.kind,
                    "cannot write an object anew"
                );
                first_failure.get_or_insert((name, error));
            }
        }
    }
    match first_failure {
        None => Ok(objects.len()),
        Some((name, error)) => {
            let of = objects.len();
            let message =
                format!("{failed} of {of} objects of {} cannot be written, such as {name}", definition.name_any());
            Err(Error::transient(INCOMPLETE, message).caused_by(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn definition(storage: &str, stored: &Value) -> CustomResourceDefinition {
        let version = |name: &str| json!({"name": name, "served": true, "storage": name == storage});
        serde_json::from_value(json!({
            "metadata": {"name": "parcels.example.io", "resourceVersion": "7"},
            "spec": {
                "group": "example.io", "scope": "Namespaced", "names": {"kind": "Parcel", "plural": "parcels"},
                "versions": [version("v1"), version("v2")],
            },
            "status": {"storedVersions": stored},
        }))
        .unwrap()
    }

    #[test]
    fn there_is_something_to_do_while_another_version_is_named_as_stored() {
        let migrate = |stored: &str, old: &[&str]| Plan::Migrate {
            stored: stored.to_owned(),
            old: old.iter().map(|version| (*version).to_owned()).collect(),
        };
        for (storage, stored, expected) in [
            ("v2", json!(["v2"]), Plan::Nothing),
            ("v2", json!(["v1", "v2"]), migrate("v2", &["v1"])),
            ("v2", json!(["v0", "v1", "v2"]), migrate("v2", &["v0", "v1"])),
            ("v1", json!(["v1", "v2"]), migrate("v1", &["v2"])),
            ("v2", Value::Null, Plan::Nothing),
        ] {
            assert_eq!(plan(&definition(storage, &stored)), expected, "{storage} {stored}");
        }
    }

    #[test]
    fn old_versions_are_dropped_from_what_was_read_only() {
        let patch = drop_old_versions(&definition("v2", &json!(["v1", "v2"])), "v2");
        assert_eq!(patch, json!({"metadata": {"resourceVersion": "7"}, "status": {"storedVersions": ["v2"]}}));
    }
}

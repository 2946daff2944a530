//! The plugin of kubectl, for annotated Secrets.
//!
//! The operator writes nothing but keys on a Secret. So the plugin tells what a Secret declares, which keys are the operator's, and when
//! the operator wrote last. Later results are in the events alone.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use konverge::{PAUSED, RECONCILE_AT};
use konverge_apply::field_ownership;
use konverge_kubectl::{
    Cluster, Detail, Difference, Fact, Failure, Finding, Found, Grade, Installed, Job, Kind, ObjectHealth, Operator,
    Permission, Place, RequestedAction, reported_events,
};
use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use serde_json::Value;

use crate::{
    annotations::{Declaration, ENVIRONMENT, FROM, PAUSE, PROJECT, RECORD, SYNC, SYNC_NOW, WORKSPACE, declaration},
    config::{Config, PROGRAM},
    messages,
    objects::{
        secret_pull::SecretPull,
        secret_source::{ClusterSecretSource, SecretSource},
        zopp_secret_sync::ZoppSecretSync,
    },
    reasons,
    reconcile::FIELD_MANAGER,
    zopp::{SCHEME, messages as zopp_messages, record::read_unverified},
};

/// Pull, for the plugin.
pub struct Pull;

#[async_trait]
impl Job for Pull {
    fn name(&self) -> &'static str {
        "pull"
    }

    fn operator(&self) -> &'static str {
        PROGRAM
    }

    fn kinds(&self) -> Vec<Kind> {
        let objects = [
            ApiResource::erase::<SecretPull>(&()),
            ApiResource::erase::<SecretSource>(&()),
            ApiResource::erase::<ClusterSecretSource>(&()),
            ApiResource::erase::<ZoppSecretSync>(&()),
        ];
        let [pulls, sources, cluster_sources, syncs] =
            objects.map(|resource| Kind::namespaced(resource, Detail::Whole));
        let secrets = Kind::namespaced(ApiResource::erase::<Secret>(&()), Detail::Metadata);
        vec![
            secrets,
            Kind { short: &["spull"], ..pulls },
            Kind { short: &["ssrc"], ..sources },
            Kind { short: &["cssrc"], is_namespaced: false, ..cluster_sources },
            Kind { short: &["zss"], ..syncs },
        ]
    }

    fn health(&self, kind: &Kind, object: &DynamicObject) -> Option<ObjectHealth> {
        if kind.detail == Detail::Metadata { health(&object.metadata) } else { Some(object_health(object)) }
    }

    fn how_to_opt_in(&self, _: &Kind, name: &str) -> String {
        format!(
            "To have it filled from an environment of zopp:\n  kubectl annotate secret {name} {SYNC}=true {WORKSPACE}=… {PROJECT}=… {ENVIRONMENT}=…\nFrom \
             Vault:\n  kubectl annotate secret {name} {FROM}=vault://MOUNT/PATH"
        )
    }

    async fn explain(&self, _: &Cluster, kind: &Kind, object: &DynamicObject) -> Vec<Fact> {
        if matches!(&*kind.resource.kind, "SecretSource" | "ClusterSecretSource") {
            return Vec::new();
        }
        let keys = keys(&object.metadata);
        let keys = if keys.is_empty() { "none yet".to_owned() } else { keys.join(", ") };
        let may = "by the rules of --allow, unless the events have the reason NotAllowed";
        vec![Fact::new("its keys", keys), Fact::new("allowed", may)]
    }

    async fn difference(&self, _: &Cluster, _: &Kind, _: &DynamicObject) -> Result<Vec<Difference>, Failure> {
        Err(Failure::Failed(
            "pull cannot be compared from here: only the operator has the keys and tokens for its sources. zopp secret list and vault kv get \
             show what they hold"
                .to_owned(),
        ))
    }

    fn annotation_for(
        &self,
        object: &DynamicObject,
        action: &RequestedAction,
    ) -> Result<(&'static str, Value), Failure> {
        let is_secret = object.types.as_ref().is_none_or(|types| types.kind == "Secret");
        let (sync, pause) = if is_secret { (SYNC_NOW, PAUSE) } else { (RECONCILE_AT, PAUSED) };
        match action {
            RequestedAction::Sync(token) => Ok((sync, token.clone().into())),
            RequestedAction::Pause => Ok((pause, "true".into())),
            RequestedAction::Resume => Ok((pause, Value::Null)),
            RequestedAction::Adopt(_) | RequestedAction::Release => Err(action.unsupported(self.name())),
        }
    }
}

#[async_trait]
impl Operator for Pull {
    type Config = Config;

    fn how_to_install(&self) -> &'static str {
        "apply deploy/zopp-operator.yaml, unless it runs outside of the cluster"
    }

    fn role(&self) -> &'static str {
        "deploy/rbac/zopp-operator.yaml"
    }

    fn needed(&self, config: &Config, home: &str) -> Vec<Permission> {
        // An operator that is confined to a namespace needs no rights in the whole cluster.
        let only = config.namespace.as_deref();
        let of_kind = |group, kind, status| {
            let read = Permission::verbs(group, kind, ["list", "watch"]);
            read.into_iter().chain(Permission::verbs(group, status, ["patch"]))
        };
        let in_namespaces = Permission::verbs("", "secrets", ["get", "list", "watch", "create", "patch", "delete"])
            .into_iter()
            .chain(of_kind("konverge.dev", "secretpulls", "secretpulls/status"))
            .chain(of_kind("konverge.dev", "secretsources", "secretsources/status"))
            .chain(of_kind("zopp.dev", "zoppsecretsyncs", "zoppsecretsyncs/status"))
            .map(|permission| permission.within(only));
        let in_cluster = of_kind("konverge.dev", "clustersecretsources", "clustersecretsources/status")
            .chain(Permission::verbs("", "namespaces", ["list"]))
            .filter(|_| only.is_none());
        in_namespaces.chain(in_cluster).chain(Permission::of_program(config, home)).collect()
    }

    fn check_settings(&self, operator: &Installed<Config>) -> Vec<Finding> {
        vec![match &*operator.config.allow {
            rules if !rules.iter().any(|rule| rule.scheme() == SCHEME) => Finding::note(
                "settings",
                "any namespace may have every environment that the operator's principal can read",
                Some("give it --allow, as docs/how-to/tenancy.md says"),
            ),
            [rule] => Finding::fine("settings", format!("one rule says who may have what: {rule}")),
            rules => Finding::fine("settings", format!("{} rules say who may have what", rules.len())),
        }]
    }

    async fn check_objects(&self, cluster: &Cluster, found: &Found<'_, Config>) -> Vec<Finding> {
        let failures = found.objects.iter().filter_map(|objects| objects.found.as_ref().err());
        let mut findings: Vec<_> = failures.map(|failure| Finding::unknown("objects", failure)).collect();
        let objects = found.objects.iter().flat_map(|objects| &objects.found).flatten();
        let objects = objects.filter(|object| object.types.as_ref().is_none_or(|types| types.kind == "Secret"));
        let bound: Vec<_> = objects.filter_map(|object| Some((&object.metadata, health(&object.metadata)?))).collect();
        let written = bound.iter().filter(|(_, health)| health.grade == Grade::InSync).count();
        let text = format!("{written} of {} written", bound.len());
        let is_wrong = bound.iter().any(|(_, health)| health.grade == Grade::Wrong);
        findings.push(if is_wrong {
            Finding::wrong("objects", text, "kubectl konverge status secrets -A")
        } else {
            Finding::fine("objects", text)
        });
        findings.extend(believed_keys(bound.iter().map(|(metadata, _)| *metadata)));
        match unknown_keys(cluster, &bound, found.namespace).await {
            Ok(unknown) => findings.extend(unknown),
            Err(failure) => findings.push(Finding::unknown("workspace key", &failure)),
        }
        findings
    }
}

/// Returns a note about each workspace whose first key is trusted, from the records on the Secrets. Any editor of a Secret can write such a record,
/// so the note names the Secret.
fn believed_keys<'a>(bound: impl Iterator<Item = &'a ObjectMeta>) -> Vec<Finding> {
    let mut secrets: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for metadata in bound {
        let record = metadata.annotations.as_ref().and_then(|annotations| read_unverified(annotations.get(RECORD)?));
        if let Some(record) = record.filter(|record| record.key.is_first_use) {
            let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
            let secret = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
            let key = (record.environment.workspace, record.key.fingerprint);
            secrets.entry(key).or_default().insert(secret);
        }
    }
    let texts =
        secrets.iter().map(|((workspace, key), secrets)| zopp_messages::recorded_first_key(workspace, *key, secrets));
    texts.map(|text| Finding::note("workspace key", text, None)).collect()
}

/// Returns a finding for each unpinned key that the operator refuses, from its events about these Secrets. Ignores events older than the operator's
/// last write.
async fn unknown_keys(
    cluster: &Cluster,
    bound: &[(&ObjectMeta, ObjectHealth)],
    namespace: Option<&str>,
) -> Result<Vec<Finding>, Failure> {
    let of_uid: BTreeMap<_, _> =
        bound.iter().filter_map(|(metadata, health)| Some((metadata.uid.as_deref()?, health.since))).collect();
    if of_uid.is_empty() {
        return Ok(Vec::new());
    }
    let events = reported_events(cluster, PROGRAM, reasons::WORKSPACE_KEY_UNKNOWN, namespace).await?;
    let current = events.into_iter().filter(|event| {
        let written = event.object.uid.as_deref().and_then(|uid| of_uid.get(uid));
        written.is_some_and(|written| written.is_none_or(|written| event.last > written))
    });
    let texts: BTreeSet<_> = current.map(|event| event.message).collect();
    Ok(texts.into_iter().map(|text| Finding::wrong("workspace key", text, WORKSPACE_KEY_NEXT)).collect())
}

/// The next step for an unpinned key. The text of the event has the flag.
const WORKSPACE_KEY_NEXT: &str = "pin the key, after a member has confirmed it";

/// Returns the state of a Secret as far as its metadata tell it, or `None` if it is not annotated.
fn health(metadata: &ObjectMeta) -> Option<ObjectHealth> {
    match declaration(metadata.annotations.as_ref()?)? {
        Declaration::Incomplete(missing) => {
            let statement = messages::incomplete(&missing);
            Some(ObjectHealth::new(statement.reason, Grade::Wrong, statement.text))
        }
        Declaration::Invalid(cause) => {
            let statement = messages::invalid_annotation(&cause);
            Some(ObjectHealth::new(statement.reason, Grade::Wrong, statement.text))
        }
        Declaration::Paused => {
            let statement = messages::paused();
            Some(ObjectHealth::new(statement.reason, Grade::Paused, statement.text))
        }
        Declaration::Bound(wanted) => {
            let references = wanted.sources.iter().map(|source| source.reference.to_string());
            let paths: Vec<_> = references.map(|path| Place { path, version: None, note: None }).collect();
            if keys(metadata).is_empty() {
                let text = "the operator has written nothing yet; the events show why".to_owned();
                return Some(ObjectHealth { paths, ..ObjectHealth::new("Pending", Grade::Waiting, text) });
            }
            let entries = metadata.managed_fields.iter().flatten();
            let of_ours = entries.filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER));
            let since = of_ours.filter_map(|entry| entry.time.as_ref().map(|time| time.0)).max();
            let text = "last written at that time; only the events show later results".to_owned();
            Some(ObjectHealth { since, paths, ..ObjectHealth::new("Written", Grade::InSync, text) })
        }
    }
}

/// Returns the state of a custom resource, as its status tells it.
fn object_health(object: &DynamicObject) -> ObjectHealth {
    let status = &object.data["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ready = conditions.clone().find(|condition| condition["type"] == "Ready");
    let Some(ready) = ready else {
        let text = "the operator has written no status yet; the events show why".to_owned();
        return ObjectHealth::new("Pending", Grade::Waiting, text);
    };
    let word = |name: &str| ready[name].as_str().unwrap_or_default();
    let grade = match word("status") {
        "True" => Grade::InSync,
        _ if word("reason") == reasons::SUSPENDED => Grade::Waiting,
        _ => Grade::Wrong,
    };
    let sources = status["sources"].as_array().into_iter().flatten();
    let place = |source: &Value| {
        let path = source["from"].as_str().unwrap_or_default().to_owned();
        Place { path, version: source["version"].as_u64().filter(|version| *version > 0), note: None }
    };
    let since = word("lastTransitionTime").parse().ok();
    ObjectHealth {
        since,
        paths: sources.map(place).collect(),
        ..ObjectHealth::new(word("reason"), grade, word("message").to_owned())
    }
}

/// The keys that are the operator's.
fn keys(metadata: &ObjectMeta) -> Vec<String> {
    let fields = metadata.managed_fields.as_deref().unwrap_or_default();
    field_ownership::data_keys(fields, FIELD_MANAGER).all().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use konverge_kubectl::Verdict;
    use serde_json::json;

    use super::*;
    use crate::zopp::record::tests::{key, record};

    #[test]
    fn a_record_that_anybody_may_have_written_is_not_called_the_operators() {
        let mut believed = record("production", "e1", 4, None);
        believed.key.is_first_use = true;
        let metadata: Vec<ObjectMeta> = [("team-a", "x"), ("team-b", "y")]
            .map(|(namespace, name)| {
                let annotations = json!({ RECORD: key(9).seal(&believed) });
                serde_json::from_value(json!({ "namespace": namespace, "name": name, "annotations": annotations }))
                    .unwrap()
            })
            .into();
        let found = believed_keys(metadata.iter());
        assert_eq!(found.iter().map(|finding| finding.verdict).collect::<Vec<_>>(), [Verdict::Note], "{found:?}");
        let text = &found[0].text;
        assert!(text.contains("by the record on Secret team-a/x, team-b/y, which is not verified here"), "{text}");
    }

    #[test]
    fn what_a_secret_tells_of_itself() {
        let bound = json!({ SYNC: "true", WORKSPACE: "acme", PROJECT: "backend", ENVIRONMENT: "production" });
        let field = |manager: &str| {
            json!([{ "manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "time": "2026-11-21T14:00:00Z", "fieldsV1": { "f:data": { "f:PASSWORD": {} } } }])
        };
        for (annotations, fields, expected) in [
            (json!({}), json!([]), None),
            (json!({ SYNC: "false" }), json!([]), None),
            (json!({ SYNC: "true" }), json!([]), Some(("InvalidAnnotation", Grade::Wrong))),
            (bound.clone(), json!([]), Some(("Pending", Grade::Waiting))),
            (bound.clone(), field("kubectl"), Some(("Pending", Grade::Waiting))),
            (bound, field("zopp-operator"), Some(("Written", Grade::InSync))),
        ] {
            let metadata: ObjectMeta =
                serde_json::from_value(json!({ "annotations": annotations, "managedFields": fields })).unwrap();
            let found = health(&metadata);
            assert_eq!(found.as_ref().map(|found| (&*found.state, found.grade)), expected, "{metadata:?}");
            if let Some(found) = found.filter(|found| found.state == "Written") {
                assert_eq!(found.since.map(|since| since.to_string()).as_deref(), Some("2026-11-21T14:00:00Z"));
                assert_eq!(found.paths[0].path, "zopp://acme/backend/production");
            }
        }
    }
}

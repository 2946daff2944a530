//! The v1alpha1 object that takes over from a v1 object. Pure.

use konverge::{
    kube::{ResourceExt, core::DynamicObject},
    remote::{Origin, Record},
};
use konverge_kubectl::{Conversion, Failure, Kind};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{health::record, named};
use crate::{
    annotations::{ADOPT, DELETION},
    api::{
        v1::{OZGroupSpec, OZSetupKeySpec},
        v1alpha1::{GroupReference, SetupKey, SetupKeySpec},
    },
    control::seconds,
};

pub(super) fn convert(kind: &Kind, object: &DynamicObject) -> Result<Conversion, Failure> {
    match kind.resource.kind.as_str() {
        "OZGroup" => group(object),
        "OZSetupKey" => setup_key(object),
        "OZPolicy" => Err(refused(object, "v1alpha1 has no kind for policies, so it stays as it is")),
        "OZRoutingPeer" => {
            let why = "a NetworkRouter needs a DNS zone, which v1 does not name; create a NetworkRouter, move the resources, and delete this object";
            Err(refused(object, why))
        }
        "OZResource" => {
            let why = "a NetworkResource needs a Service, and this object has an address; create a NetworkResource for the Service, and delete \
                       this object";
            Err(refused(object, why))
        }
        _ => Err(refused(object, "it is of the newer version already")),
    }
}

fn refused(object: &DynamicObject, why: &str) -> Failure {
    Failure::Failed(format!("{} cannot be converted: {why}", named(object)))
}

fn spec<T: DeserializeOwned>(object: &DynamicObject) -> Result<T, Failure> {
    let spec = object.data.get("spec").cloned().unwrap_or_else(|| json!({}));
    serde_json::from_value(spec).map_err(|error| refused(object, &format!("its spec cannot be read: {error}")))
}

/// An object of the same name, with the labels of the old one.
fn successor(object: &DynamicObject, kind: &str, annotations: &Value, spec: &Value) -> Value {
    let mut metadata = json!({ "name": object.name_any(), "namespace": object.namespace() });
    if !object.labels().is_empty() {
        metadata["labels"] = json!(object.labels());
    }
    if annotations.as_object().is_some_and(|annotations| !annotations.is_empty()) {
        metadata["annotations"] = annotations.clone();
    }
    json!({ "apiVersion": "openzro.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec })
}

/// The verbs that let the old object go without its items.
fn let_go(object: &DynamicObject) -> [String; 2] {
    let kind = object.types.as_ref().map(|types| types.kind.to_ascii_lowercase()).unwrap_or_default();
    let namespace = object.namespace().unwrap_or_default();
    let (one, place) = (format!("{kind}/{}", object.name_any()), format!("-n {namespace}"));
    [format!("kubectl konverge release {one} {place}"), format!("kubectl delete {one} {place}")]
}

/// The group is adopted by its id. It goes with the new object if it was made for the old one.
fn group(object: &DynamicObject) -> Result<Conversion, Failure> {
    let OZGroupSpec { name } = spec(object)?;
    let id = object.data["status"]["groupID"].as_str().filter(|id| !id.is_empty());
    let is_made = record(object).as_ref().and_then(|record| Record::part(record, "group").map(|entry| entry.origin))
        == Some(Origin::Made);
    let mut annotations = json!({ ADOPT: id.unwrap_or("true") });
    if is_made {
        annotations[DELETION] = json!("delete");
    }
    let [release, delete] = let_go(object);
    let steps = vec![release, delete, "kubectl apply -f - with the object that follows".to_owned()];
    Ok(Conversion { object: successor(object, "Group", &annotations, &json!({ "name": name })), steps })
}

/// The server tells a key once, so the new object has a new key in another Secret.
fn setup_key(object: &DynamicObject) -> Result<Conversion, Failure> {
    let old: OZSetupKeySpec = spec(object)?;
    let Some(name) = old.name.filter(|_| old.secret_key_ref.is_none()) else {
        return Err(refused(object, "a SetupKey always creates its key, and this object names a Secret of yours"));
    };
    if old.type_.as_deref() == Some("one-off") || old.usage_limit.unwrap_or_default() > 0 {
        return Err(refused(object, "a SetupKey is for any number of peers"));
    }
    let duration =
        old.expires_in.as_deref().map(|text| seconds(text).map(|seconds| format!("{}m", seconds.div_ceil(60))));
    let duration = duration.transpose().map_err(|why| refused(object, &format!("spec.expiresIn {why}")))?;
    let reference = |group: String| GroupReference { name: Some(group), ..GroupReference::default() };
    let new = SetupKeySpec {
        name,
        ephemeral: old.ephemeral.unwrap_or_default(),
        duration,
        auto_groups: old.auto_groups.into_iter().map(reference).collect(),
        allow_extra_dns_labels: old.allow_extra_dns_labels,
    };
    let spec = serde_json::to_value(new).map_err(|error| Failure::Failed(error.to_string()))?;
    let [_, delete] = let_go(object);
    let secret = SetupKey::secret_name(&object.name_any());
    let steps = vec![
        "kubectl apply -f - with the object that follows; its autoGroups are display names of groups".to_owned(),
        format!("use the new key in the Secret {secret}, key {}", SetupKey::SECRET_KEY),
        delete,
    ];
    Ok(Conversion { object: successor(object, "SetupKey", &json!({}), &spec), steps })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value, reason = "the rows of tables are made in place")]

    use konverge::RECORD;
    use konverge_kubectl::Job;

    use super::*;
    use crate::plugin::Manage;

    fn converted(kind: &str, annotations: Value, spec: Value, status: Value) -> Result<Conversion, Failure> {
        let metadata = json!({ "name": "devs", "namespace": "shop", "uid": "u", "labels": { "team": "a" }, "annotations": annotations });
        let object = json!({ "apiVersion": "openzro.io/v1", "kind": kind, "metadata": metadata, "spec": spec, "status": status });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let kind = Manage.kinds().into_iter().find(|known| known.resource.kind == kind).unwrap();
        convert(&kind, &object)
    }

    #[test]
    fn a_group_is_taken_over_by_its_id_and_keeps_its_fate() {
        let status = json!({ "groupID": "g1" });
        let adopted = converted("OZGroup", json!({}), json!({ "name": "Devs" }), status.clone()).unwrap();
        let metadata = |annotations: Value| json!({ "name": "devs", "namespace": "shop", "labels": { "team": "a" }, "annotations": annotations });
        let object = |annotations: Value| json!({ "apiVersion": "openzro.io/v1alpha1", "kind": "Group", "metadata": metadata(annotations), "spec": { "name": "Devs" } });
        assert_eq!(adopted.object, object(json!({ ADOPT: "g1" })));
        assert_eq!(
            adopted.steps[..2],
            ["kubectl konverge release ozgroup/devs -n shop", "kubectl delete ozgroup/devs -n shop"]
        );

        let parts = json!({ "group": { "origin": "made", "name": "Devs", "id": "g1" } });
        let record = json!({ "cluster": "c", "uid": "u", "parts": parts }).to_string();
        let made = converted("OZGroup", json!({ RECORD: record }), json!({ "name": "Devs" }), status).unwrap();
        assert_eq!(made.object, object(json!({ ADOPT: "g1", DELETION: "delete" })));
        let unknown = converted("OZGroup", json!({}), json!({ "name": "Devs" }), json!({})).unwrap();
        assert_eq!(unknown.object["metadata"]["annotations"], json!({ ADOPT: "true" }));
    }

    #[test]
    fn a_setup_key_becomes_one_with_the_same_meaning() {
        let spec = json!({ "name": "pods", "expiresIn": "30d", "autoGroups": ["Devs"], "ephemeral": true });
        let found = converted("OZSetupKey", json!({}), spec, json!({})).unwrap();
        let expected =
            json!({ "name": "pods", "ephemeral": true, "duration": "43200m", "autoGroups": [{ "name": "Devs" }] });
        assert_eq!(found.object["spec"], expected);
        assert!(found.steps[1].contains("setup-key-devs"), "{:?}", found.steps);
    }

    #[test]
    fn an_object_without_a_successor_says_why() {
        for (kind, spec, why) in [
            ("OZPolicy", json!({}), "no kind for policies"),
            ("OZRoutingPeer", json!({}), "needs a DNS zone"),
            ("OZResource", json!({}), "needs a Service"),
            ("OZSetupKey", json!({ "secretKeyRef": { "name": "s", "key": "k" } }), "names a Secret of yours"),
            ("OZSetupKey", json!({ "name": "a", "type": "one-off" }), "any number of peers"),
            ("OZSetupKey", json!({ "name": "a", "expiresIn": "soon" }), "spec.expiresIn"),
            ("Group", json!({ "name": "a" }), "newer version already"),
        ] {
            let error = converted(kind, json!({}), spec, json!({})).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}

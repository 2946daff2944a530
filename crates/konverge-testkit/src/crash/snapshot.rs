//! The state of a namespace without what differs from run to run.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::{Map, Value};

/// Stands for the namespace's name.
const NAMESPACE: &str = "<namespace>";

/// Fields that the API server or a clock writes into any object.
const METADATA: [&str; 7] =
    ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation", "managedFields", "selfLink"];

/// Times, wherever they are.
const TIMES: [&str; 7] = [
    "lastTransitionTime",
    "lastUpdateTime",
    "lastProbeTime",
    "lastHeartbeatTime",
    "lastSyncTime",
    "startTime",
    "completionTime",
];

/// Objects that the controllers of a cluster create in every namespace at some time.
const OF_THE_CLUSTER: [&str; 2] = ["kube-root-ca.crt", "default"];

/// All objects of these kinds in the namespace, [masked](mask), by plural name.
pub async fn snapshot(client: &Client, namespace: &str, kinds: &[ApiResource]) -> Result<Value, kube::Error> {
    let mut found = Map::new();
    for kind in kinds {
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, kind);
        let list = api.list(&ListParams::default()).await?;
        let ours = list.items.into_iter().filter(|object| {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            !OF_THE_CLUSTER.contains(&name)
        });
        let objects = ours.map(|object| serde_json::to_value(object).map_err(kube::Error::SerdeError));
        let mut objects =
            objects.map(|object| Ok(mask(object?, namespace))).collect::<Result<Vec<_>, kube::Error>>()?;
        // A name of the server's choice decides the order of a list, and is masked.
        objects.sort_by_cached_key(ToString::to_string);
        found.insert(kind.plural.clone(), objects.into());
    }
    Ok(found.into())
}

/// The annotation that proves who the owner of a child is: a keyed digest over the owner's uid.
const OWNER_PROOF: &str = "konverge.dev/owner-proof";

/// Removes from an object what differs from run to run: metadata that the API server writes, uids in references to owners and proofs of them, and
/// times of conditions. It also removes the name of the namespace, and a name that the server chose.
pub fn mask(mut object: Value, namespace: &str) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in METADATA {
            metadata.remove(key);
        }
        if let Some(Value::String(prefix)) = metadata.get("generateName").cloned() {
            metadata.insert("name".to_owned(), format!("{prefix}<generated>").into());
        }
        let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
            owner.remove("uid");
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(OWNER_PROOF);
        }
    }
    without_times(&mut object, namespace);
    object
}

fn without_times(value: &mut Value, namespace: &str) {
    match value {
        Value::Object(fields) => {
            for key in TIMES {
                fields.remove(key);
            }
            fields.values_mut().for_each(|value| without_times(value, namespace));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| without_times(value, namespace)),
        Value::String(text) if !namespace.is_empty() && text.contains(namespace) => {
            *text = text.replace(namespace, NAMESPACE);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::mask;

    #[test]
    fn what_differs_from_run_to_run_is_masked_and_nothing_else() {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "copy-x7k2p",
                "generateName": "copy-",
                "namespace": "crash-17",
                "uid": "1",
                "resourceVersion": "2",
                "creationTimestamp": "3",
                "generation": 4,
                "managedFields": [],
                "labels": { "uid": "stays" },
                "ownerReferences": [{ "kind": "Ship", "name": "s", "uid": "5" }],
            },
            "data": { "address": "db.crash-17.svc" },
            "status": { "conditions": [{ "type": "Ready", "lastTransitionTime": "6" }] },
        });
        let masked = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "copy-<generated>",
                "generateName": "copy-",
                "namespace": "<namespace>",
                "labels": { "uid": "stays" },
                "ownerReferences": [{ "kind": "Ship", "name": "s" }],
            },
            "data": { "address": "db.<namespace>.svc" },
            "status": { "conditions": [{ "type": "Ready" }] },
        });
        assert_eq!(mask(object, "crash-17"), masked);
        assert_eq!(mask(json!("no object"), "n"), json!("<namespace>o object"));
    }
}

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{Keys, Need, Usage};

fn workload(kind: WorkloadKind, pod: &Value) -> Workload {
    let template = json!({ "metadata": { "labels": {}, "annotations": { "a": "b" } }, "spec": pod });
    let spec = match kind {
        WorkloadKind::CronJob => json!({ "schedule": "@daily", "jobTemplate": { "spec": { "template": template } } }),
        _ => json!({ "replicas": 1, "template": template }),
    };
    let object = json!({ "apiVersion": "x/v1", "kind": kind.name(), "metadata": { "name": "a" }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

fn references(pod: &Value) -> References {
    workload(WorkloadKind::Deployment, pod).references
}

fn keys(keys: &[&str]) -> Keys {
    Keys::Some(keys.iter().map(|key| (*key).to_owned()).collect())
}

#[test]
fn every_way_to_use_a_secret_or_a_config_map_is_found() {
    let pod = json!({
        "containers": [{
            "name": "main",
            "env": [
                { "name": "PLAIN", "value": "in clear text" },
                { "name": "A", "valueFrom": { "secretKeyRef": { "name": "by-key", "key": "a" } } },
                { "name": "B", "valueFrom": { "configMapKeyRef": { "name": "by-key", "key": "b" } } },
                { "name": "C", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
            ],
            "envFrom": [{ "secretRef": { "name": "all-keys" } }, { "configMapRef": { "name": "all-keys" } }],
        }],
        "initContainers": [{ "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "init", "key": "a" } } }] }],
        "ephemeralContainers": [{ "envFrom": [{ "secretRef": { "name": "debug" } }] }],
        "volumes": [
            { "name": "a", "secret": { "secretName": "volume", "items": [{ "key": "a", "path": "a" }] } },
            { "name": "b", "configMap": { "name": "volume", "items": [] } },
            { "name": "c", "projected": { "sources": [
                { "secret": { "name": "projected" } },
                { "configMap": { "name": "projected", "items": [{ "key": "x", "path": "x" }] } },
                { "serviceAccountToken": { "path": "token" } },
            ] } },
            { "name": "d", "csi": { "driver": "x", "nodePublishSecretRef": { "name": "driver" } } },
            { "name": "e", "csi": {
                "driver": "secrets-store.csi.k8s.io", "volumeAttributes": { "secretProviderClass": "vault" },
            } },
            { "name": "f", "csi": { "driver": "x", "volumeAttributes": { "secretProviderClass": "other" } } },
            { "name": "j", "csi": { "driver": "file.csi.azure.com", "volumeAttributes": { "secretName": "share" } } },
            { "name": "k", "csi": { "driver": "x", "volumeAttributes": { "secretName": "whatever" } } },
            { "name": "g", "azureFile": { "secretName": "azure", "shareName": "x" } },
            { "name": "h", "iscsi": { "secretRef": { "name": "chap" } } },
            { "name": "i", "emptyDir": {} },
        ],
        "imagePullSecrets": [{ "name": "registry" }],
    });
    for kind in WorkloadKind::ALL {
        let found = workload(kind, &pod);
        assert_eq!(found.template_annotations["a"], "b", "{kind:?}");
        let found = found.references;
        let secrets: Vec<_> = found.secrets.iter().map(|(name, usage)| (&**name, usage.keys.clone())).collect();
        let expected = [
            ("all-keys", Keys::All),
            ("by-key", keys(&["a"])),
            ("debug", Keys::All),
            ("driver", Keys::All),
            ("init", keys(&["a"])),
            ("projected", Keys::All),
            ("volume", keys(&["a"])),
        ];
        assert_eq!(secrets, expected, "{kind:?}");
        let maps: Vec<_> = found.config_maps.iter().map(|(name, usage)| (&**name, usage.keys.clone())).collect();
        let expected =
            [("all-keys", Keys::All), ("by-key", keys(&["b"])), ("projected", keys(&["x"])), ("volume", Keys::All)];
        assert_eq!(maps, expected, "{kind:?}");
        assert!(found.secrets.values().chain(found.config_maps.values()).all(|usage| usage.need == Need::Required));
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(found.image_pull_secrets, set(&["registry"]));
        assert_eq!(found.storage_secrets, set(&["azure", "chap", "share"]));
        assert_eq!(found.secret_provider_classes, set(&["vault"]));
    }
}

#[test]
fn one_use_that_needs_it_is_enough() {
    let optional = json!({ "secretRef": { "name": "a", "optional": true } });
    let required = json!({ "secretRef": { "name": "a" } });
    for (sources, expected) in [
        (vec![optional.clone(), required.clone()], Need::Required),
        (vec![required, optional.clone()], Need::Required),
        (vec![optional.clone(), optional], Need::Optional),
    ] {
        let found = references(&json!({ "containers": [{ "envFrom": sources }] }));
        assert_eq!(found.secrets["a"], Usage { need: expected, keys: Keys::All, required: BTreeSet::new() });
    }
}

#[test]
fn what_is_absent_or_null_uses_nothing() {
    for pod in [
        json!({}),
        json!({ "containers": null, "volumes": null }),
        json!({ "containers": [{ "env": null, "envFrom": [{ "secretRef": { "optional": true } }] }] }),
        json!({ "volumes": [{ "name": "a", "secret": { "secretName": "" } }] }),
    ] {
        assert_eq!(references(&pod), References::default(), "{pod}");
    }
    let bare = json!({ "metadata": { "name": "a" }, "spec": { "replicas": 1 } });
    assert_eq!(serde_json::from_value::<Workload>(bare).unwrap().references, References::default());
}

#[test]
fn a_rollout_may_run_pods_of_anothers_template() {
    let named = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "b", "scaleDown": "onsuccess" });
    let rollout = json!({ "metadata": { "name": "a" }, "spec": { "replicas": 1, "workloadRef": named } });
    let rollout: Workload = serde_json::from_value(rollout).unwrap();
    let expected = TemplateOf { kind: "Deployment".to_owned(), name: "b".to_owned() };
    assert_eq!((rollout.template_of, rollout.references), (Some(expected), References::default()));
    assert_eq!(workload(WorkloadKind::Deployment, &json!({})).template_of, None);
}

fn any_keys() -> impl Strategy<Value = Keys> {
    let some = proptest::collection::btree_set("[ab]", 0..3).prop_map(Keys::Some);
    prop_oneof![1 => Just(Keys::All), 4 => some]
}

proptest! {
    #[test]
    fn keys_of_two_uses_are_those_of_either(left in any_keys(), right in any_keys()) {
        let both = left.clone().and(right.clone());
        for key in ["a", "b", "c"] {
            prop_assert_eq!(both.contains(key), left.contains(key) || right.contains(key));
        }
        prop_assert_eq!(both, right.and(left));
    }
}

//! An applied object is found in sync without a request, for the kinds that operators write.

use konverge_apply::{Applier, ApplyOutcome, in_sync::is_in_sync};
use kube::{
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use super::*;

/// A pod template as people write it, leaving much to be filled in.
fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}, "annotations": {}},
        "spec": {
            "serviceAccountName": "web",
            "nodeSelector": {"disk": "fast"},
            "securityContext": {"runAsNonRoot": true},
            "initContainers": [{"name": "first", "image": "first"}, {"name": "second", "image": "second"}],
            "containers": [{
                "name": "web",
                "image": "web:1",
                "args": ["--port", "80"],
                "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
                "resources": {"limits": {"cpu": "500m"}, "requests": {"memory": "64Mi"}},
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}},
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            }],
            "volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "config", "configMap": {"name": "web"}}],
        }
    })
}

/// Group, version, kind, content; and whether it is provable from the object alone, without having applied it oneself before.
type Sample = (&'static str, &'static str, &'static str, Value, bool);

fn samples() -> Vec<Sample> {
    [plain(), workloads(), rules()].concat()
}

/// Kinds without pods.
fn plain() -> Vec<Sample> {
    vec![
        ("", "v1", "ConfigMap", json!({"data": {"a": "1", "empty": ""}}), true),
        ("", "v1", "ConfigMap", json!({}), true),
        ("", "v1", "Secret", json!({"type": "Opaque", "data": {"a": "MQ=="}}), true),
        (
            "",
            "v1",
            "Service",
            json!({"spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "name": "a"}, {"port": 53, "protocol": "UDP", "name": "b"}]}}),
            true,
        ),
        (
            "",
            "v1",
            "Service",
            json!({"spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}}),
            true,
        ),
        (
            "",
            "v1",
            "ServiceAccount",
            json!({"automountServiceAccountToken": false, "imagePullSecrets": [{"name": "r"}]}),
            true,
        ),
        (
            "",
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
            true,
        ),
    ]
}

fn workloads() -> Vec<Sample> {
    let selector = json!({"matchLabels": {"app": "web"}});
    let job = json!({ "spec": { "restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}});
    vec![
        (
            "apps",
            "v1",
            "Deployment",
            json!({"spec": {"replicas": 0, "selector": selector, "template": template()}}),
            true,
        ),
        // The API server writes half a core in its own way.
        (
            "apps",
            "v1",
            "Deployment",
            json!({"spec": {"selector": selector, "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "a", "image": "a", "resources": {"limits": {"cpu": "0.5"}}}]}
            }}}),
            false,
        ),
        (
            "apps",
            "v1",
            "StatefulSet",
            json!({"spec": {"serviceName": "web", "selector": selector, "template": template()}}),
            true,
        ),
        ("apps", "v1", "DaemonSet", json!({"spec": {"selector": selector, "template": template()}}), true),
        ("batch", "v1", "Job", json!({"spec": {"backoffLimit": 0, "template": job}}), true),
        (
            "batch",
            "v1",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *", "suspend": false, "jobTemplate": {"spec": {"template": job}}}}),
            true,
        ),
    ]
}

fn rules() -> Vec<Sample> {
    let selector = json!({"matchLabels": {"app": "web"}});
    vec![
        ("policy", "v1", "PodDisruptionBudget", json!({"spec": {"minAvailable": "50%", "selector": selector}}), true),
        (
            "rbac.authorization.k8s.io",
            "v1",
            "Role",
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
            true,
        ),
        (
            "rbac.authorization.k8s.io",
            "v1",
            "RoleBinding",
            json!({
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "web", "namespace": "n"}]
            }),
            true,
        ),
        (
            "networking.k8s.io",
            "v1",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}}),
            false,
        ),
        (
            "networking.k8s.io",
            "v1",
            "Ingress",
            json!({"spec": {"rules": [{"host": "a.example", "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}
            ]}}]}}),
            true,
        ),
        (
            "autoscaling",
            "v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {
                "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
            }}),
            true,
        ),
    ]
}

#[tokio::test]
async fn what_was_applied_is_in_sync_for_every_kind() {
    let (client, namespace) = namespace().await;
    let (mut faults, mut requests) = (Vec::new(), 0);
    for (number, (group, version, kind, content, provable)) in samples().into_iter().enumerate() {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let mut desired = DynamicObject::new(&format!("sample-{number}"), &resource).within(&namespace).data(content);
        desired.metadata.labels = Some(BTreeMap::from([("app.kubernetes.io/name".to_owned(), "web".to_owned())]));
        let applier = Applier::new(client.clone(), "ours");
        let made = applier.apply_with(&desired, None, &resource).await.unwrap();
        let (wanted, seen) = (serde_json::to_value(&desired).unwrap(), serde_json::to_value(&made.object).unwrap());
        if is_in_sync(&wanted, &seen, "ours") != provable {
            faults.push(format!("{kind}: expected {provable}: {seen:#}"));
        }
        // With what the applier remembers no request is needed; without, only for what is not provable.
        let forgetful = Applier::new(client.clone(), "ours");
        for applier in [applier, forgetful] {
            let again = applier.apply_with(&desired, Some(&made.object), &resource).await.unwrap();
            assert_eq!(again.outcome, ApplyOutcome::Unchanged, "{kind}");
        }
        // If an object is in sync, it is out of sync without one of its fields.
        let mut less = desired.clone();
        less.metadata.labels = None;
        let changed = Applier::new(client.clone(), "ours").apply_with(&less, Some(&made.object), &resource).await;
        assert_eq!(changed.unwrap().outcome, ApplyOutcome::Changed, "{kind}");
        requests += if provable { 2 } else { 3 };
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(writes_in(&namespace, requests).await, requests);
}

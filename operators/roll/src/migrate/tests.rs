use konverge_kubectl::{Detail, Kind, Listed, Migrated, Migration};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::{Reloader, Wave};

/// A kind, the annotations of an object and of its pods, what it becomes, and what is lost.
type Case<'a> = (&'a str, Value, Value, &'a [&'a str], &'a [&'a str]);

fn classify(migration: &dyn Migration, kind: &str, object: &Value) -> Option<Migrated> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    migration.classify(&Kind::namespaced(resource, Detail::Whole), &object, &Listed::default())
}

fn annotated(own: &Value, of_pods: &Value) -> Value {
    json!({
        "metadata": { "name": "web", "namespace": "shop", "annotations": own },
        "spec": { "template": { "metadata": { "annotations": of_pods } } },
    })
}

/// The parts of the sentences, each of which has to be there, and no sentence more.
fn assert_says(what: &str, found: &[String], parts: &[&str]) {
    assert_eq!(found.len(), parts.len(), "{what}: {found:?}");
    for part in parts {
        assert!(found.iter().any(|sentence| sentence.contains(part)), "{what}: {part:?} in {found:?}");
    }
}

#[test]
fn each_annotation_of_reloader_is_followed_or_lost() {
    let followed = "roll follows them with --reloader-annotations";
    let none = json!({});
    let cases: [Case<'_>; 14] = [
        ("Deployment", json!({ "reloader.stakater.com/auto": "true" }), none.clone(), &[followed], &[]),
        ("StatefulSet", none.clone(), json!({ "reloader.stakater.com/auto": "true" }), &[followed], &[]),
        ("Deployment", json!({ "reloader.stakater.com/auto": "no" }), none.clone(), &["as with Reloader"], &[]),
        ("DaemonSet", json!({ "secret.reloader.stakater.com/reload": "db,api" }), none.clone(), &[followed], &[]),
        ("Deployment", json!({ "configmap.reloader.stakater.com/reload": "app-.*" }), none.clone(), &[], &["app-.*"]),
        ("CronJob", json!({ "reloader.stakater.com/auto": "true" }), none.clone(), &[followed], &["create job --from"]),
        ("Job", json!({ "reloader.stakater.com/auto": "true" }), none.clone(), &[followed], &["creates it again"]),
        (
            "DeploymentConfig",
            json!({ "reloader.stakater.com/auto": "true" }),
            none.clone(),
            &[followed],
            &["OpenShift"],
        ),
        (
            "Deployment",
            json!({ "reloader.stakater.com/auto": "true", "deployment.reloader.stakater.com/pause-period": "5m" }),
            none.clone(),
            &[followed],
            &["minimum interval"],
        ),
        (
            "Rollout",
            json!({ "reloader.stakater.com/auto": "true", "reloader.stakater.com/rollout-strategy": "restart" }),
            none.clone(),
            &[followed],
            &["without a new revision"],
        ),
        (
            "Deployment",
            json!({ "secretproviderclass.reloader.stakater.com/reload": "vault" }),
            json!({ "reloader.stakater.com/last-reloaded-from": "{}" }),
            &["own note", "as with Reloader"],
            &["only mounts"],
        ),
        (
            "Deployment",
            json!({ "reloader.stakater.com/typo": "x" }),
            none.clone(),
            &["as with Reloader"],
            &["not known"],
        ),
        ("Secret", json!({ "reloader.stakater.com/match": "true" }), none.clone(), &[followed], &[]),
        ("ConfigMap", json!({ "reloader.stakater.com/ignore": "true" }), none.clone(), &[followed], &[]),
    ];
    for (kind, own, of_pods, becomes, lost) in cases {
        let migrated = classify(&Reloader, kind, &annotated(&own, &of_pods)).unwrap();
        let what = format!("{kind} {own} {of_pods}");
        assert_says(&what, &migrated.becomes, becomes);
        assert_says(&what, &migrated.lost, lost);
    }
    for foreign in
        [json!({}), json!({ "roll.konverge.dev/on-change": "true" }), json!({ "notreloader.stakater.com/x": "" })]
    {
        assert_eq!(classify(&Reloader, "Deployment", &annotated(&foreign, &none)), None, "{foreign}");
    }
}

#[test]
fn reloaders_own_flags_become_flags_of_roll() {
    let deployment = json!({
        "metadata": { "name": "reloader", "namespace": "tools" },
        "spec": { "template": { "spec": { "containers": [{
            "image": "ghcr.io/stakater/reloader:v1.4.12",
            "args": [
                "--auto-annotation=example.com/auto", "--auto-reload-all=true", "--reload-on-delete=true", "--reload-on-create=true",
                "--enable-ha=false", "--webhook-url=http://hook", "--surprise",
            ],
            "env": [{ "name": "ALERT_ON_RELOAD", "value": "true" }],
        }] } } },
    });
    let migrated = classify(&Reloader, "Deployment", &deployment).unwrap();
    let becomes = [
        "Scale it to 0",
        "--reloader-annotation=reloader.stakater.com/auto=example.com/auto",
        "--auto-reload-all=true: --reloader-auto-reload-all",
        "a source that appears",
    ];
    assert_says("flags", &migrated.becomes, &becomes);
    assert_says("flags", &migrated.lost, &["a deletion restarts nothing", "no webhook", "--surprise", "Alertmanager"]);
    let mut other = deployment;
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx");
    assert_eq!(classify(&Reloader, "Deployment", &other), None);
}

#[test]
fn waves_annotations_are_followed_in_the_own_namespace() {
    let followed = "with --wave-annotations";
    let update = "wave.pusher.com/update-on-config-change";
    let none = json!({});
    let cases: [(Value, Value, &[&str], &[&str]); 4] = [
        (json!({ update: "true" }), none.clone(), &[followed], &[]),
        (json!({ update: "yes" }), none.clone(), &["as with wave"], &[]),
        (json!({ update: "true" }), json!({ "wave.pusher.com/config-hash": "0" }), &[followed, "is a rollout"], &[]),
        (
            json!({ update: "true", "wave.pusher.com/extra-secrets": "other/db" }),
            none.clone(),
            &[],
            &["in another namespace"],
        ),
    ];
    for (own, of_pods, becomes, lost) in cases {
        let migrated = classify(&Wave, "Deployment", &annotated(&own, &of_pods)).unwrap();
        assert_says(&own.to_string(), &migrated.becomes, becomes);
        assert_says(&own.to_string(), &migrated.lost, lost);
    }
    let mut left = annotated(&none, &none);
    assert_eq!(classify(&Wave, "Deployment", &left), None);
    left["metadata"]["finalizers"] = json!(["wave.pusher.com/finalizer"]);
    let migrated = classify(&Wave, "Deployment", &left).unwrap();
    assert_says("finalizer", &migrated.becomes, &["as with wave", "Remove it"]);
}

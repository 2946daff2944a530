//! Fields of other managers stay as they are, whatever we write on the object (W17).

use konverge_push::object::Kind;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::world::{World, until};

/// The other writers on the objects. The API server notes nothing of who scales them.
const OTHERS: [&str; 2] = ["gitops", "their-controller"];

const THEIRS: &str = "example.com/theirs";
const OURS: &str = "vault-sync.io/finalizer";

/// The object without what is ours, what a person asks for, and what counts each write.
async fn of_others(world: &World, kind: Kind) -> Value {
    let object = world.api(kind).get("app").await.unwrap();
    let mut object = serde_json::to_value(object).unwrap();
    object.as_object_mut().unwrap().remove("status");
    let metadata = object["metadata"].as_object_mut().unwrap();
    for changing in ["resourceVersion", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(changing);
    }
    let annotations = metadata["annotations"].as_object_mut().unwrap();
    annotations.retain(|name, _| !name.starts_with("vault-sync.io/"));
    metadata["finalizers"].as_array_mut().unwrap().retain(|name| name != OURS);
    let fields = metadata["managedFields"].as_array_mut().unwrap();
    fields.retain(|entry| OTHERS.iter().any(|other| entry["manager"] == *other));
    for entry in fields {
        entry.as_object_mut().unwrap().remove("time");
    }
    object
}

async fn applied_by_gitops(world: &World, kind: Kind) {
    let labels = json!({ "app": "app", "example.com/team": "a" });
    let mut object = match kind {
        Kind::Secret => json!({
            "type": "example.com/custom",
            "data": { "k": "dg==" },
        }),
        _ => json!({ "spec": {
            "minReadySeconds": 7,
            "selector": { "matchLabels": { "app": "app" } },
            "template": { "metadata": { "labels": labels, "annotations": { "example.com/stamp": "1" } }, "spec": {
                "hostUsers": false,
                "containers": [{
                    "name": "main", "image": "example.com/app",
                    "resizePolicy": [{ "resourceName": "cpu", "restartPolicy": "NotRequired" }],
                    "envFrom": [{ "secretRef": { "name": "db" } }],
                }],
            } },
        } }),
    };
    object["apiVersion"] = kind.resource().api_version.into();
    object["kind"] = kind.name().into();
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": "11111111-2222-3333-4444-555555555555" });
    object["metadata"] = json!({
        "name": "app", "labels": labels, "annotations": { "example.com/by": "gitops" }, "ownerReferences": [owner],
    });
    world.api(kind).patch("app", &PatchParams::apply("gitops"), &Patch::Apply(&object)).await.unwrap();
    let theirs = json!({ "metadata": {
        "annotations": { "example.com/note": "theirs" }, "finalizers": [THEIRS],
    } });
    let manager = PatchParams { field_manager: Some("their-controller".to_owned()), ..PatchParams::default() };
    world.api(kind).patch("app", &manager, &Patch::Merge(theirs)).await.unwrap();
}

async fn scale(world: &World, replicas: u32) {
    let change = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    world.api(Kind::Deployment).patch_subresource("scale", "app", &PatchParams::default(), &change).await.unwrap();
}

/// Waits until our finalizer is there or not.
async fn is_held(world: &World, kind: Kind, by_us: bool) {
    until(&format!("our finalizer is there: {by_us}"), async || {
        let held = world.api(kind).get_metadata("app").await.unwrap().finalizers().to_vec();
        let is_so = held.iter().any(|name| name == OURS) == by_us && held.iter().any(|name| name == THEIRS);
        if is_so { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
}

#[tokio::test]
async fn w17_what_others_keep_on_an_object_survives_write_move_and_deletion() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    world.secret("db", &[("user", "u")], json!({})).await;
    for kind in [Kind::Deployment, Kind::Secret] {
        let path = |name: &str| world.path(&format!("{}-{name}", kind.plural()));
        let at = |name: &str| if kind == Kind::Secret { path(name) } else { format!("{}/db", path(name)) };
        let told: &[(&str, &str)] = if kind == Kind::Secret { &[("k", "v")] } else { &[("user", "u")] };
        applied_by_gitops(&world, kind).await;
        let mut before = of_others(&world, kind).await;
        assert_eq!(before["metadata"]["managedFields"].as_array().unwrap().len(), 2, "{before}");
        let as_before = async |before: &Value| assert_eq!(of_others(&world, kind).await, *before);

        world.annotate(kind, "app", json!({ "vault-sync.io/path": path("first") })).await;
        world.holds(&at("first"), told).await;
        world.says(kind, "app", "Synced").await;
        is_held(&world, kind, true).await;
        as_before(&before).await;

        if kind == Kind::Deployment {
            scale(&world, 5).await;
            before = of_others(&world, kind).await;
            assert_eq!(before["spec"]["replicas"], 5);
        }
        world.annotate(kind, "app", json!({ "vault-sync.io/path": path("second") })).await;
        world.holds(&at("second"), told).await;
        world.is_deleted(&at("first")).await;
        world.says(kind, "app", "Synced").await;
        as_before(&before).await;

        // Let go without being deleted, and taken up again.
        world.annotate(kind, "app", json!({ "vault-sync.io/path": null })).await;
        is_held(&world, kind, false).await;
        as_before(&before).await;
        world.annotate(kind, "app", json!({ "vault-sync.io/path": path("second") })).await;
        world.holds(&at("second"), told).await;
        is_held(&world, kind, true).await;

        world.delete(kind, "app").await;
        is_held(&world, kind, false).await;
        assert_eq!(world.read(&at("second")).await, None);
        as_before(&before).await;
        world.merge(kind, "app", json!({ "metadata": { "finalizers": null } })).await;
        world.gone(kind, "app").await;
    }
}

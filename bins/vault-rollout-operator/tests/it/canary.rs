//! Argo Rollouts that are listed late after a start: nothing is decided before they have been seen.

use konverge_testkit::{
    ARGO_ROLLOUTS,
    fault_proxy::{FaultProxy, Plan},
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::json;

use crate::{
    outside,
    stage::{Result, Stage, until},
    view::{ALL, View},
};

const SLOW: &str = "rules: [{ when: { mutating: false, resources: [rollouts.argoproj.io] }, then: { delay: 3s } }]";

fn rollouts(view: &View) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Rollout");
    Api::namespaced_with(view.client.clone(), &view.namespace, &ApiResource::from_gvk(&kind))
}

/// Argo itself is not here: the test says that all pods of a Rollout are new and ready.
async fn is_ready(view: &View, name: &str) -> Result<()> {
    let object = rollouts(view).get_metadata(name).await?;
    let generation = object.metadata.generation.unwrap_or_default().to_string();
    let pods = json!({ "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "observedGeneration": generation });
    let status = Patch::Merge(json!({ "status": pods }));
    rollouts(view).patch_status(name, &PatchParams::default(), &status).await?;
    Ok(())
}

async fn make(view: &View, name: &str, spec: serde_json::Value) -> Result<()> {
    let metadata = json!({ "name": name, "annotations": { ALL: "true" } });
    let object = json!({ "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": metadata, "spec": spec });
    rollouts(view).patch(name, &PatchParams::apply("user"), &Patch::Apply(&object)).await?;
    is_ready(view, name).await
}

/// The Deployment `web` has no pods of its own: those of its template are run by a Rollout. The Rollout `first` comes before the Deployment `second`.
#[tokio::test(flavor = "multi_thread")]
async fn what_changed_while_it_was_down_is_rolled_in_its_order_although_rollouts_are_seen_late() {
    let stage = Stage::set().await;
    stage.plane.apply(ARGO_ROLLOUTS).await.unwrap();
    let view = stage.view("canary").await;
    until("the kind is served", async || Ok(rollouts(&view).list(&ListParams::default()).await.is_ok())).await;
    view.secret("db", "1").await.unwrap();
    view.deployment("web", "db").await.unwrap();
    let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    view.api("Deployment").patch("web", &PatchParams::default(), &none).await.unwrap();
    let web = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    make(&view, "canary", json!({ "replicas": 1, "workloadRef": web })).await.unwrap();
    let container = json!({ "name": "main", "envFrom": [{ "secretRef": { "name": "db" } }] });
    let template = json!({ "spec": { "containers": [container] } });
    make(&view, "first", json!({ "replicas": 1, "template": template })).await.unwrap();
    let last = json!({ ALL: "true", "roll.konverge.dev/wave": "1" });
    view.workload("Deployment", "second", "db", last).await.unwrap();

    let proxy = FaultProxy::start(stage.plane.run_directory(), stage.kubeconfig()).await.unwrap();
    let mut operator = stage.start_through(proxy.kubeconfig(), &view.namespace, &[]).await;
    let is_noted = async |object: DynamicObject| {
        Ok(object.metadata.annotations.is_some_and(|own| own.contains_key("roll.konverge.dev/record")))
    };
    for name in ["web", "second"] {
        until("it is noted", async || is_noted(view.api("Deployment").get(name).await?).await).await;
    }
    until("it is noted", async || is_noted(rollouts(&view).get("first").await?).await).await;

    operator.process.kill();
    view.secret("db", "2").await.unwrap();
    proxy.set(Plan::parse(SLOW).unwrap()).unwrap();
    operator.process.start_again().unwrap();
    operator.ready().await;
    let changes = async |name: &str| {
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(view.seen("Deployment", name).await?.changes)
    };
    until("the template is changed that the Rollout runs", async || Ok(changes("web").await? == 1)).await;
    until("the first wave is rolled", async || {
        let template = outside::template(&rollouts(&view).get("first").await?);
        Ok(template.pointer("/metadata/annotations/roll.konverge.dev~1content").is_some())
    })
    .await;
    operator.settled().await;
    assert_eq!(changes("second").await.unwrap(), 0, "the first wave is not ready");
    is_ready(&view, "first").await.unwrap();
    until("the next wave is rolled", async || Ok(changes("second").await? == 1)).await;
}

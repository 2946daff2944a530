//! Children that wait for those before them.

use k8s_openapi::api::apps::v1::Deployment;
use konverge::prelude::*;
use konverge_testkit::eventually;
use kube::Api;
use serde_json::{Value, json};

use crate::stage::{LIMIT, Place, Probe, Runs, operator};

/// The database before the app.
#[derive(Clone, Default)]
struct Stacking(Runs);

pub(crate) fn deployment(name: &str) -> Deployment {
    let labels = json!({"app": name});
    let containers = json!([{"name": "main", "image": "example.io/main"}]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

impl Reconcile<Probe> for Stacking {
    type Error = Error;

    async fn apply(&self, _: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        let mut settings = ConfigMap::default();
        settings.metadata.name = Some("settings".to_owned());
        // A config map is ready as soon as it exists.
        let children = context.children().with(settings).when_ready().with(deployment("database")).when_ready();
        children.with(deployment("app")).apply().await?;
        self.0.note(&context);
        Ok(Action::Done)
    }
}

/// Says what the controller of deployments would say.
pub(crate) async fn status(place: &Place, name: &str, available: i64) {
    let deployments: Api<Deployment> = place.api();
    let generation = deployments.get(name).await.unwrap().metadata.generation;
    let progress = json!({"type": "Available", "status": if available > 0 { "True" } else { "False" }});
    let status: Value = json!({"status": {
        "observedGeneration": generation, "replicas": 1, "updatedReplicas": 1, "readyReplicas": available,
        "availableReplicas": available, "conditions": [progress],
    }});
    let parameters = kube::api::PatchParams::default();
    deployments.patch_status(name, &parameters, &kube::api::Patch::Merge(status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn row_34_the_app_waits_until_the_database_is_ready() {
    let (place, stacking) = (Place::new().await, Stacking::default());
    let runs = stacking.0.clone();
    let controller = Controller::new(stacking).owns::<ConfigMap>().owns::<Deployment>();
    let _running = place.run(operator(controller), &[]).await;
    place.create_probe("stack", "ok").await;
    let waiting = place
        .says("stack", |conditions| conditions.get("Ready").is_some_and(|ready| ready.reason == "WaitingForChildren"))
        .await;
    let said = waiting.status.unwrap();
    assert!(said.conditions.is_true("Reconciling"));
    let message = &said.conditions.get("Ready").unwrap().message;
    assert!(message.contains("/database is in progress"), "{message}");
    let deployments: Api<Deployment> = place.api();
    assert!(deployments.get_opt("database").await.unwrap().is_some());
    status(&place, "database", 0).await;
    runs.reach("stack", 2).await;
    assert!(deployments.get_opt("app").await.unwrap().is_none());

    // Its readiness is what wakes the owner.
    status(&place, "database", 1).await;
    let made = eventually(LIMIT, || async { deployments.get_opt("app").await.unwrap() });
    made.await.unwrap();
    // The last child of all counts like the others: without a replica the object is not ready.
    let waits_for_app = |conditions: &konverge::apply::Conditions| {
        conditions
            .get("Ready")
            .is_some_and(|ready| ready.status == "False" && ready.message.contains("/app is in progress"))
    };
    place.says("stack", waits_for_app).await;
    status(&place, "app", 1).await;
    place.says("stack", |conditions| conditions.is_true("Ready")).await;
}

/// Its children are deleted in the reverse order, except for the backups.
struct Keeping;

impl Reconcile<Probe> for Keeping {
    type Error = Error;

    async fn apply(&self, _: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        let named = |name: &str| {
            let mut config_map = ConfigMap::default();
            config_map.metadata.name = Some(name.to_owned());
            config_map
        };
        let children = context.children().with_options(named("backups"), konverge::apply::ChildOptions::retain);
        let children = children.with(named("database"));
        children.with_options(named("app"), |child| child.after::<ConfigMap>("database")).apply().await?;
        Ok(Action::Done)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_object_takes_its_children_along_in_the_reverse_order_and_leaves_what_is_retained() {
    let place = Place::new().await;
    let controller = Controller::new(Keeping).owns::<ConfigMap>().finalizer("test.konverge.dev/children");
    let _running = place.run(operator(controller), &[]).await;
    place.create_probe("cache", "ok").await;
    place.says("cache", |conditions| conditions.is_true("Ready")).await;
    let (probes, config_maps): (Api<Probe>, Api<ConfigMap>) = (place.api(), place.api());
    probes.delete("cache", &kube::api::DeleteParams::default()).await.unwrap();
    // Nothing collects garbage here, so the app stays until this test has done that.
    let going = eventually(LIMIT, || async {
        let app = config_maps.get("app").await.unwrap();
        app.metadata.deletion_timestamp.is_some().then_some(())
    });
    going.await.unwrap();
    assert!(config_maps.get("database").await.unwrap().metadata.deletion_timestamp.is_none());
    place.merge::<ConfigMap>("app", json!({"metadata": {"finalizers": null}})).await;
    let gone = eventually(LIMIT, || async { probes.get_opt("cache").await.unwrap().is_none().then_some(()) });
    gone.await.unwrap();
    assert!(config_maps.get_opt("database").await.unwrap().is_none());
    assert!(config_maps.get_opt("backups").await.unwrap().is_some());
}

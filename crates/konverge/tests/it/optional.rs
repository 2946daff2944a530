//! Kinds whose definition may be missing.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge::{Watch, generate::Files, prelude::*};
use konverge_testkit::eventually;
use kube::{Api, CustomResourceExt, api::DeleteParams};
use serde_json::json;

use crate::stage::{LIMIT, Place, Probe, Running, control_plane, operator};

/// A kind that is installed late, as `ServiceMonitor` is.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "optional.test.konverge.dev", version = "v1", kind = "Monitor", namespaced)]
struct MonitorSpec {
    port: String,
}

struct Monitored;

impl Reconcile<Probe> for Monitored {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(probe.name_any());
        let monitor = Monitor::new(&probe.name_any(), MonitorSpec { port: "http".to_owned() });
        context.children().with(map).with(monitor).apply().await?;
        Ok(Action::Done)
    }
}

/// Waits until the readiness page says that the kind is missing, or does not.
async fn is_missing(running: &Running, is_missing: bool) {
    let told = eventually(LIMIT, || async {
        let (code, text) = running.get("/readyz?verbose").await;
        assert_eq!(code, 200, "{text}");
        let says_so = text.contains("does not serve monitors.optional.test.konverge.dev");
        (says_so == is_missing).then_some(())
    });
    told.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_ready_without_an_optional_kind_and_makes_its_children_once_it_is_installed() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    let monitors: Api<Monitor> = place.api();
    let controller = Controller::new(Monitored)
        .owns::<ConfigMap>()
        .owns_with(Watch::<Monitor>::new().optional())
        .finalizer("test.konverge.dev/optional");
    let running = place.run(operator(controller), &[]).await;
    for name in ["one", "two"] {
        place.create_probe(name, "ok").await;
        place.says(name, |conditions| conditions.is_true("Ready")).await;
        assert!(place.api::<ConfigMap>().get_opt(name).await.unwrap().is_some());
    }
    is_missing(&running, true).await;
    // A missing kind holds up no deletion.
    place.api::<Probe>().delete("two", &DeleteParams::default()).await.unwrap();
    let gone =
        eventually(LIMIT, || async { place.api::<Probe>().get_opt("two").await.unwrap().is_none().then_some(()) });
    gone.await.unwrap();

    let mut files = Files::default();
    files.objects("crds.yaml", &[Monitor::crd()]).unwrap();
    cluster.apply(&files.manifest()).await.unwrap();
    let made = async || eventually(LIMIT, || async { monitors.get_opt("one").await.unwrap() }).await.unwrap();
    let first = made().await;
    is_missing(&running, false).await;
    // From now on it is a child like any other.
    monitors.delete("one", &DeleteParams::default()).await.unwrap();
    let again = eventually(LIMIT, || async {
        monitors.get_opt("one").await.unwrap().filter(|monitor| monitor.uid() != first.uid())
    });
    again.await.unwrap();

    let definitions: Api<CustomResourceDefinition> = Api::all(place.client.clone());
    definitions.delete(&Monitor::crd().name_any(), &DeleteParams::default()).await.unwrap();
    is_missing(&running, true).await;
    place.merge::<Probe>("one", json!({"spec": {"behave": "fine"}})).await;
    let ready = eventually(LIMIT, || async {
        let status = place.api::<Probe>().get("one").await.unwrap().status?;
        (status.observed_generation == Some(2) && status.conditions.is_true("Ready")).then_some(())
    });
    ready.await.unwrap();
}

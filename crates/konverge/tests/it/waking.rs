//! Events that trigger a controller, and events that do not.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream;
use konverge::prelude::*;
use kube::api::PostParams;
use serde_json::json;
use tokio::sync::mpsc;

use crate::stage::{Place, Probe, Prober, operator};

#[tokio::test(flavor = "multi_thread")]
async fn row_17_a_controller_does_not_wake_itself() {
    let (place, prober) = (Place::new().await, Prober::default());
    let runs = prober.runs.clone();
    let controller = Controller::new(prober).finalizer("test.konverge.dev/cleanup");
    let _running = place.run(operator(controller), &[]).await;
    place.create_probe("quiet", "ok").await;
    // A finalizer and a status were written; their echoes are in the cache before that of what comes later.
    place.says("quiet", |conditions| conditions.is_true("Ready")).await;
    place.create_probe("later", "ok").await;
    place.says("later", |conditions| conditions.is_true("Ready")).await;
    assert_eq!(runs.of("quiet").len(), 1, "{:?}", runs.of("quiet"));
}

#[tokio::test(flavor = "multi_thread")]
async fn row_25_a_stream_from_outside_wakes_the_object_it_names() {
    let (place, prober) = (Place::new().await, Prober::default());
    let runs = prober.runs.clone();
    let (send, receive) = mpsc::channel::<String>(8);
    let controller = Controller::new(prober).trigger("bucket", move |store| {
        stream::unfold((receive, store), |(mut receive, store)| async move {
            let name = receive.recv().await?;
            let key = store.keys().into_iter().find(|key| key.name == name)?;
            Some((key, (receive, store)))
        })
    });
    let _running = place.run(operator(controller), &[]).await;
    place.create_probe("outside", "ok").await;
    runs.reach("outside", 1).await;
    send.send("outside".to_owned()).await.unwrap();
    assert!(runs.reach("outside", 2).await[1].reasons.contains(&"bucket"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_kind_wakes_the_objects_that_it_concerns_and_can_be_read() {
    struct Reader(Arc<AtomicUsize>);

    impl Reconcile<Probe> for Reader {
        type Error = Error;

        async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
            let key = ObjectKey::namespaced(probe.namespace().unwrap(), "shared");
            let shared = context.watched::<ConfigMap>()?.get(&key);
            let value = shared.and_then(|shared| shared.data.clone()?.get("value")?.parse().ok());
            self.0.store(value.unwrap_or_default(), Ordering::SeqCst);
            Ok(Action::Done)
        }
    }

    let (place, seen) = (Place::new().await, Arc::new(AtomicUsize::new(0)));
    let controller = Controller::new(Reader(Arc::clone(&seen))).watches::<ConfigMap, _>(
        Selection::default(),
        |config_map, probes| match config_map.name_any().as_str() {
            "shared" => probes.keys(),
            _ => Vec::new(),
        },
    );
    let _running = place.run(operator(controller), &[]).await;
    place.create_probe("reader", "ok").await;
    let mut config_map = ConfigMap::default();
    config_map.metadata.name = Some("shared".to_owned());
    config_map.data = Some([("value".to_owned(), "7".to_owned())].into());
    place.api::<ConfigMap>().create(&PostParams::default(), &config_map).await.unwrap();
    let is = |value| {
        let seen = Arc::clone(&seen);
        konverge_testkit::eventually(crate::stage::LIMIT, move || {
            std::future::ready((seen.load(Ordering::SeqCst) == value).then_some(()))
        })
    };
    is(7).await.unwrap();
    place.merge::<ConfigMap>("shared", json!({"data": {"value": "8"}})).await;
    is(8).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn row_30_a_burst_of_changes_becomes_few_runs_and_none_is_lost() {
    let (place, prober) = (Place::new().await, Prober::default());
    let runs = prober.runs.clone();
    let controller = Controller::new(prober).debounce(Duration::from_millis(500));
    let _running = place.run(operator(controller), &[]).await;
    place.create_probe("busy", "ok").await;
    for number in 0..30 {
        place.merge::<Probe>("busy", json!({"spec": {"behave": format!("ok {number}")}})).await;
    }
    let last = place
        .says("busy", |conditions| conditions.get("Ready").is_some_and(|ready| ready.observed_generation == Some(31)));
    last.await;
    assert!(runs.of("busy").len() < 10, "{:?}", runs.of("busy").len());
}

use std::sync::Mutex;

use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::{object::ObjectKey, watch::Event};

fn object(name: &str, version: u32) -> Guarded<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("a".to_owned());
    object.metadata.name = Some(name.to_owned());
    object.metadata.resource_version = Some(version.to_string());
    Guarded(Ok(object))
}

/// Returns the notifications that these events cause: names, and whether the object is there and was listed.
async fn told(events: Vec<Event<Guarded<ConfigMap>>>) -> Vec<(String, bool, bool)> {
    let store = Store::new("test");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    store.subscribe(move |key: &ObjectKey, change: &Change<ConfigMap>| {
        tells.lock().unwrap().push((key.name.clone(), change.new.is_some(), change.listed));
    });
    Filled { store, namespace: None }.by(stream::iter(events).map(Observed::from)).await;
    let mut told = told.lock().unwrap().clone();
    told.sort();
    told
}

#[tokio::test]
async fn the_first_list_is_told_when_it_is_complete() {
    let begin = || vec![Event::Init, Event::InitApply(object("x", 1)), Event::InitApply(object("y", 1))];
    assert_eq!(told(begin()).await, []);
    let mut complete = begin();
    complete.push(Event::InitDone);
    let both = [("x".to_owned(), true, true), ("y".to_owned(), true, true)];
    assert_eq!(told(complete).await, both);
    // The list breaks off, begins anew, and y is gone by then.
    let mut again = begin();
    again.extend([Event::Init, Event::InitApply(object("x", 1)), Event::InitDone]);
    assert_eq!(told(again).await, [("x".to_owned(), true, true), ("y".to_owned(), false, true)]);
}

#[tokio::test]
async fn a_later_list_is_told_as_it_comes_and_only_what_it_changes() {
    let events = vec![
        Event::Init,
        Event::InitApply(object("same", 1)),
        Event::InitApply(object("changed", 1)),
        Event::InitApply(object("gone", 1)),
        Event::InitDone,
    ];
    let first = told(events.clone()).await.len();
    let later =
        [Event::Init, Event::InitApply(object("same", 1)), Event::InitApply(object("changed", 2)), Event::InitDone];
    let all = told(events.into_iter().chain(later).collect()).await;
    assert_eq!((first, all.len()), (3, 5));
    let times = |name: &str, is_there| all.iter().filter(|told| told.0 == name && told.1 == is_there).count();
    assert_eq!((times("same", true), times("changed", true), times("gone", false)), (1, 2, 1));
}

/// Runs a program with a cache of `ConfigMaps`, which no list completes, for longer than all caches may take to be complete.
async fn run_without_a_list(is_converted: bool) -> Option<Result<(), crate::manager::RunError>> {
    // No answer ever comes, as from an API server that has no route to the webhook that converts.
    let silent = tower::service_fn(|_request: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let metrics = crate::Metrics::new("test", "0");
    let measures = metrics.caches().clone();
    let mut manager = Manager::bind(([127, 0, 0, 1], 0).into(), metrics).await.unwrap();
    let mut caches = Caches::new(kube::Client::new(silent, "shop"), "test", &measures);
    let _cache = caches.cache::<ConfigMap>(&(), &Selection::default());
    if is_converted {
        caches.ready_before(["configmaps.".to_owned()]);
    }
    let limit = std::time::Duration::from_mins(2);
    caches.require_within(&mut manager, limit);
    caches.install(&mut manager);
    let shutdown = manager.shutdown();
    let running = tokio::spawn(manager.run());
    tokio::time::sleep(2 * limit).await;
    if running.is_finished() {
        return Some(running.await.unwrap());
    }
    shutdown.cancel();
    running.await.unwrap().unwrap();
    None
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_the_program_converts_does_not_end_it_though_it_cannot_be_listed_yet() {
    let ended = run_without_a_list(false).await;
    assert!(matches!(ended, Some(Err(crate::manager::RunError::NotSynced { .. }))), "{ended:?}");
    assert!(run_without_a_list(true).await.is_none());
}

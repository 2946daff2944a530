//! How an author has caches filled, what they keep, and what can be found in them.

use std::sync::{Arc, Mutex};

use konverge::{
    Operator, Watch,
    prelude::*,
    runtime::{cache::Caching, watch::InitialList},
};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;

use crate::stage::{LIMIT, Place, Probe, Prober, control_plane, operator, run_as, start_as};

fn by_behaviour(probe: &Probe) -> Vec<String> {
    vec![probe.spec.behave.clone()]
}

fn by_wish(config_map: &ConfigMap) -> Vec<String> {
    config_map.data.iter().flatten().filter(|(key, _)| *key == "wish").map(|(_, wish)| wish.clone()).collect()
}

/// A probe, which ones behave alike, and which config maps wish for that.
type Seen = (String, Vec<String>, Vec<String>);

/// Notes what it sees.
#[derive(Clone, Default)]
struct Looking(Arc<Mutex<Vec<Seen>>>);

impl Reconcile<Probe> for Looking {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        let mut alike: Vec<_> = context.store().find_keys(by_behaviour, &probe.spec.behave);
        alike.sort();
        let wishes = context.watched::<ConfigMap>()?.find(by_wish, &probe.spec.behave);
        let wishes = wishes.iter().map(|config_map| config_map.name_any()).collect();
        let alike = alike.into_iter().map(|key| key.name).collect();
        self.0.lock().unwrap().push((probe.name_any(), alike, wishes));
        Ok(Action::Done)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_29_declared_indexes_lead_from_one_kind_to_another_and_back() {
    let (place, looking) = (Place::new().await, Looking::default());
    let seen = Arc::clone(&looking.0);
    let maps = Watch::<ConfigMap>::new().caching(|maps| maps.index(by_wish));
    let controller = Controller::new(looking).index(by_behaviour).watches(maps, |config_map, probes| {
        by_wish(config_map).iter().flat_map(|wish| probes.find_keys(by_behaviour, wish)).collect::<Vec<_>>()
    });
    let _running = place.run(operator(controller), &[]).await;
    for (name, behave) in [("one", "red"), ("two", "blue"), ("three", "red")] {
        place.create_probe(name, behave).await;
    }
    let knows = |name: &'static str, alike: &'static [&str], wishes: &'static [&str]| {
        let seen = Arc::clone(&seen);
        konverge_testkit::eventually(LIMIT, move || {
            let found = seen.lock().unwrap().iter().rev().find(|(of, ..)| of == name).cloned();
            let found = found.filter(|(_, found, wishing)| found == alike && wishing == wishes);
            std::future::ready(found)
        })
    };
    knows("three", &["one", "three"], &[]).await.unwrap();
    place.create_config_map("wishing", &[("wish", "red")]).await;
    knows("one", &["one", "three"], &["wishing"]).await.unwrap();
    place.merge::<ConfigMap>("wishing", json!({"data": {"wish": "blue"}})).await;
    knows("one", &["one", "three"], &[]).await.unwrap();
    knows("two", &["two"], &["wishing"]).await.unwrap();
}

/// Runs a program whose caches are filled as told, and returns what it asked for first.
async fn first_requests(program: &'static str, caching: fn(Caching<Probe>) -> Caching<Probe>) -> Vec<String> {
    let (place, cluster, prober) = (Place::new().await, control_plane().await, Prober::default());
    let runs = prober.runs.clone();
    for name in ["one", "two", "three"] {
        place.create_probe(name, "ok").await;
    }
    let program_of = |prober| Operator::new(program, "0").controller(Controller::new(prober).caching(caching));
    let manifest = program_of(Prober::default()).generate(&place.namespace).unwrap().manifest();
    let account = cluster.install(program, &place.namespace, &manifest).await.unwrap();
    let running = run_as(account.kubeconfig(), program_of(prober), &["--namespace", &place.namespace]).await;
    for name in ["one", "two", "three"] {
        runs.reach(name, 1).await;
    }
    // Later changes are seen as usual.
    place.create_probe("four", "ok").await;
    runs.reach("four", 1).await;
    running.end().await.unwrap();
    let log = cluster.audit_log().unwrap();
    log.catch_up(&place.client).await.unwrap();
    let requests = account.requests(&log).unwrap();
    let reads =
        requests.into_iter().filter(|request| request.object_ref.resource == "probes" && !request.is_mutating());
    reads.map(|request| request.request_uri).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_initial_list_comes_in_pages_or_as_a_stream() {
    let paged = first_requests("konverge-paged", |caching| {
        caching.initial_list(InitialList::Pages(2)).watch_timeout(Duration::from_secs(120))
    });
    let paged = paged.await;
    assert_eq!(paged.iter().filter(|request| request.contains("limit=2")).count(), 2, "{paged:#?}");
    assert!(paged.iter().any(|request| request.contains("watch=true") && request.contains("timeoutSeconds=120")));
    let streamed = first_requests("konverge-streamed", |caching| caching.initial_list(InitialList::Streamed)).await;
    assert!(streamed.iter().all(|request| request.contains("watch=true")), "{streamed:#?}");
    assert!(streamed[0].contains("sendInitialEvents=true"), "{streamed:#?}");
}

/// Notes how much of a config map there is.
struct Weighing(Arc<Mutex<Vec<(String, usize, usize)>>>);

impl Reconcile<ConfigMap> for Weighing {
    type Error = Error;

    async fn apply(&self, config_map: Arc<ConfigMap>, _: Context<ConfigMap>) -> Result<Action, Error> {
        let keys = config_map.data.as_ref().map_or(0, std::collections::BTreeMap::len);
        self.0.lock().unwrap().push((config_map.name_any(), keys, config_map.labels().len()));
        Ok(Action::Done)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_29_what_nobody_reads_is_not_kept_and_its_changes_are_seen() {
    let (place, seen) = (Place::new().await, Arc::new(Mutex::new(Vec::new())));
    let controller = Controller::watching(Weighing(Arc::clone(&seen))).caching(|caching| {
        caching.transform(|config_map: &mut ConfigMap| {
            config_map.data = None;
            // The name and uid cannot be trimmed.
            config_map.metadata.name = None;
        })
    });
    let _running = place.run(operator(controller), &[]).await;
    place.create_config_map("heavy", &[("a", "1"), ("b", "2")]).await;
    place.merge::<ConfigMap>("heavy", json!({"metadata": {"labels": {"a": "b"}}})).await;
    let light = konverge_testkit::eventually(LIMIT, || {
        let runs = seen.lock().unwrap();
        std::future::ready(runs.iter().any(|run| *run == ("heavy".to_owned(), 0, 1)).then_some(()))
    });
    light.await.unwrap();
    assert!(seen.lock().unwrap().iter().all(|(_, keys, _)| *keys == 0), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_30_an_object_rests_between_two_runs() {
    let (place, prober) = (Place::new().await, Prober::default());
    let runs = prober.runs.clone();
    let controller = Controller::new(prober).min_interval(Duration::from_millis(1500));
    let _running = place.run(operator(controller), &[]).await;
    place.create_probe("busy", "after").await;
    place.create_probe("other", "ok").await;
    let of_busy = runs.reach("busy", 3).await;
    for pair in of_busy.windows(2) {
        // It asks for one after a third of a second.
        assert!(pair[1].at - pair[0].at >= Duration::from_millis(1490), "{of_busy:?}");
    }
    assert_eq!(runs.of("other").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_kind_cannot_be_listed_ends_after_a_while_and_names_it() {
    let gvk = GroupVersionKind::gvk("nowhere.konverge.dev", "v1", "Nothing");
    let controller = Controller::<DynamicObject, _>::dynamic(
        ApiResource::from_gvk(&gvk),
        reconcile_fn(|_object, _context| async { Ok::<_, Error>(Action::Done) }),
    );
    let kubeconfig = control_plane().await.kubeconfig();
    let running = start_as(kubeconfig, operator(controller), &["--cache-sync-timeout=1"]).await;
    let error = running.ended().await.unwrap_err();
    assert!(error.contains("within 1s: ") && error.contains("nothings: ") && error.contains("definitions"), "{error}");
}

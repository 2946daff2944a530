//! Which objects a program works on: namespaces, labels, fields, and the shards that they make.

use konverge::prelude::*;
use serde_json::json;

use crate::stage::{Place, Probe, Prober, Runs, control_plane, operator, run_as};

#[tokio::test(flavor = "multi_thread")]
async fn row_29_several_namespaces_are_looked_at_and_no_others() {
    let places = [Place::new().await, Place::new().await];
    let (outside, prober) = (Place::new().await, Prober::default());
    let runs = prober.runs.clone();
    outside.create_probe("outside", "ok").await;
    places[0].create_probe("before", "ok").await;
    let controller = Controller::new(prober).watches::<ConfigMap, _>(Selection::default(), |config_map, _| {
        [ObjectKey { namespace: config_map.namespace(), name: config_map.name_any() }]
    });
    let arguments = ["--namespace", &places[0].namespace, "--namespace", &places[1].namespace];
    let _running = run_as(control_plane().await.kubeconfig(), operator(controller), &arguments).await;
    runs.reach("before", 1).await;
    places[1].create_probe("after", "ok").await;
    runs.reach("after", 1).await;
    // Changes in each are seen, of what is watched besides too, and none elsewhere.
    outside.create_config_map("outside", &[]).await;
    outside.merge::<Probe>("outside", json!({"spec": {"behave": "fine"}})).await;
    for (place, name) in places.iter().zip(["before", "after"]) {
        place.merge::<Probe>(name, json!({"spec": {"behave": "fine"}})).await;
        runs.reach(name, 2).await;
        place.create_config_map(name, &[]).await;
        assert!(runs.reach(name, 3).await[2].reasons.contains(&"watched"));
    }
    assert_eq!(runs.of("outside"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_choose_one_object() {
    let (place, prober) = (Place::new().await, Prober::default());
    let runs = prober.runs.clone();
    let controller = Controller::new(prober).field_selector("metadata.name=chosen");
    let running = place.run(operator(controller), &[]).await;
    for name in ["other", "chosen"] {
        place.create_probe(name, "ok").await;
    }
    runs.reach("chosen", 1).await;
    assert_eq!(runs.of("other"), []);
    running.measures(r#"konverge_cache_objects{resource="probes"} 1"#).await;
}

/// A shard of a program that is about one team's objects.
async fn shard(place: &Place, name: &str) -> (crate::stage::Running, Runs) {
    let prober = Prober::default();
    let runs = prober.runs.clone();
    let (selector, lease) = (format!("--selector=shard={name}"), format!("--lease-name=shard-{name}"));
    let namespace = format!("--lease-namespace={}", place.namespace);
    let arguments = [&selector, "--leader-election", &lease, &namespace];
    let running = place.run(operator(Controller::new(prober).label_selector("team=ours")), &arguments).await;
    (running, runs)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_35_each_object_has_one_shard_and_each_shard_one_leader() {
    let place = Place::new().await;
    let (one, one_runs) = shard(&place, "one").await;
    let (two, two_runs) = shard(&place, "two").await;
    // Both lead, each with a lease of its own.
    for (running, name) in [(&one, "one"), (&two, "two")] {
        running.measures(&format!("leader_election_master_status{{name=\"shard-{name}\"}} 1")).await;
    }
    let (standby, standby_runs) = shard(&place, "one").await;
    let objects =
        [("a", "one", "ours"), ("b", "two", "ours"), ("c", "one", "theirs"), ("d", "two", "theirs"), ("e", "", "ours")];
    for (name, shard, team) in objects {
        place.create_labelled(name, "ok", &[("shard", shard), ("team", team)]).await;
    }
    one_runs.reach("a", 1).await;
    two_runs.reach("b", 1).await;
    place.says("a", |conditions| conditions.is_true("Ready")).await;
    // Moved, it is the other's business.
    place.merge::<Probe>("a", json!({"metadata": {"labels": {"shard": "two"}}})).await;
    two_runs.reach("a", 1).await;
    let names = |runs: &Runs| runs.counts().into_iter().collect::<Vec<_>>();
    assert_eq!(names(&one_runs), [("a".to_owned(), 1)]);
    assert_eq!(names(&two_runs), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    assert_eq!(names(&standby_runs), []);
    // The leader of a shard that goes is followed by its own standby.
    one.end().await.unwrap();
    place.create_labelled("f", "ok", &[("shard", "one"), ("team", "ours")]).await;
    standby_runs.reach("f", 1).await;
    assert_eq!(two_runs.of("f"), []);
    for running in [two, standby] {
        running.end().await.unwrap();
    }
}

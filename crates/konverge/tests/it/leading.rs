//! Leadership as programs have it, under the numbers of the baseline's shortcomings.

use std::time::Instant;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::{SignedDuration, Timestamp},
};
use konverge::{Operator, Watch, prelude::*, runtime::object::ObjectKey};
use konverge_testkit::{
    eventually,
    fault_proxy::{FaultProxy, Plan},
};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::{
    faults::Texts,
    stage::{Echo, EchoSpec, Echoer, LIMIT, Place, Probe, Prober, Running, Runs, control_plane, run_as},
};

const NAME: &str = "konverge-leading-leader";

/// A program with two controllers that waits for its lease.
async fn candidate(place: &Place, arguments: &[&str]) -> (Running, Runs) {
    let prober = Prober::default();
    let runs = prober.runs.clone();
    let program = Operator::new("konverge-leading", "0")
        .controller(Controller::new(prober))
        .controller(Controller::new(Echoer::default()));
    let namespace = format!("--lease-namespace={}", place.namespace);
    let running = place.run(program, &[&["--leader-election", &namespace], arguments].concat()).await;
    (running, runs)
}

async fn holder(place: &Place, name: &str) -> Option<String> {
    let lease = place.api::<Lease>().get_opt(name).await.unwrap()?;
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_02_03_12_13_a_standby_is_ready_idle_and_can_be_stopped() {
    let place = Place::new().await;
    place.create_probe("one", "ok").await;
    let (leader, leader_runs) = candidate(&place, &[]).await;
    leader_runs.reach("one", 1).await;
    let first = holder(&place, NAME).await.unwrap();

    // Row 3: ready, with full caches, and without work. Row 12: on the same host, and still somebody else.
    let (standby, standby_runs) = candidate(&place, &[]).await;
    standby.measures(r#"konverge_cache_objects{resource="probes"} 1"#).await;
    standby.measures(r#"leader_election_master_status{name="konverge-leading-leader"} 0"#).await;
    // Row 2: told to stop, it does, though it never led.
    let told = Instant::now();
    standby.end().await.unwrap();
    assert!(told.elapsed() < Duration::from_secs(5), "{:?}", told.elapsed());
    assert_eq!(standby_runs.counts().len(), 0);

    // Row 13: what others write into the lease stays, and their writes cost nobody the lease.
    for number in 0..10 {
        place.merge::<Lease>(NAME, json!({"metadata": {"labels": {"number": number.to_string()}}})).await;
    }
    let renewed = place.api::<Lease>().get(NAME).await.unwrap().spec.unwrap().renew_time;
    let later = eventually(LIMIT, || async {
        let lease = place.api::<Lease>().get(NAME).await.unwrap();
        (lease.spec.as_ref().unwrap().renew_time > renewed).then_some(lease)
    });
    let lease = later.await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap()["number"], "9");
    assert_eq!(lease.spec.unwrap().holder_identity, Some(first.clone()));

    // The next one has another name.
    leader.end().await.unwrap();
    let (_next, next_runs) = candidate(&place, &[]).await;
    next_runs.reach("one", 1).await;
    assert_ne!(holder(&place, NAME).await.unwrap(), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_a_lost_lease_ends_the_whole_program_with_an_error() {
    let place = Place::new().await;
    place.create_probe("one", "ok").await;
    let (leader, runs) = candidate(&place, &[]).await;
    runs.reach("one", 1).await;
    // Work under way is dropped, not awaited, because the next leader may do it already.
    place.create_probe("hang", "hang").await;
    runs.reach("hang", 1).await;
    let now = MicroTime(Timestamp::now());
    let taken = json!({"spec": {"holderIdentity": "another", "acquireTime": now, "renewTime": now}});
    place.merge::<Lease>(NAME, taken).await;
    let error = leader.ended().await.unwrap_err();
    assert_eq!(error, "no longer the leader");
    assert_eq!(holder(&place, NAME).await.as_deref(), Some("another"), "it is not taken back");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_11_the_clock_of_the_holder_decides_nothing() {
    let place = Place::new().await;
    place.create_probe("one", "ok").await;
    for (name, hours) in [("behind", -1), ("ahead", 1)] {
        let mut lease = Lease::default();
        lease.metadata.name = Some(name.to_owned());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some("dead".to_owned()),
            lease_duration_seconds: Some(4),
            renew_time: Some(MicroTime(Timestamp::now() + SignedDuration::from_hours(hours))),
            ..LeaseSpec::default()
        });
        place.api::<Lease>().create(&PostParams::default(), &lease).await.unwrap();
        let lease = format!("--lease-name={name}");
        let began = Instant::now();
        let timings = ["--lease-duration=4", "--renew-deadline=3", "--retry-period=1"];
        let (running, runs) = candidate(&place, &[&[lease.as_str()], &timings[..]].concat()).await;
        runs.reach("one", 1).await;
        // The holder keeps the lease, whatever time it names, for the lease's duration, counted from the observation.
        let waited = began.elapsed();
        assert!(waited > Duration::from_millis(3900) && waited < Duration::from_secs(12), "{name}: {waited:?}");
        running.end().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queue_of_a_standby_forgets_objects_that_are_gone() {
    let place = Place::new().await;
    let (_leader, runs) = candidate(&place, &[]).await;
    place.create_probe("first", "ok").await;
    runs.reach("first", 1).await;
    let (standby, standby_runs) = candidate(&place, &["--debug-queues"]).await;
    // Objects come and go, as runs and jobs do.
    for number in 0..20 {
        let name = format!("passing-{number}");
        place.create_probe(&name, "ok").await;
        place.api::<Probe>().delete(&name, &DeleteParams::default()).await.unwrap();
    }
    place.create_probe("last", "ok").await;
    let queued = eventually(LIMIT, || async {
        let (_, text) = standby.get("/debug/queues").await;
        text.contains("/last").then_some(text)
    });
    let queued: serde_json::Value = serde_json::from_str(&queued.await.unwrap()).unwrap();
    let probes = queued.as_array().unwrap().iter().find(|queue| queue["queue"] == "probes").unwrap();
    let names: Vec<_> = probes["objects"].as_array().unwrap().iter().map(|queued| &queued["object"]).collect();
    assert_eq!(names, [&format!("{}/first", place.namespace), &format!("{}/last", place.namespace)]);
    assert_eq!(standby_runs.counts().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_with_a_lease_of_its_own_waits_for_that_one_and_the_others_do_not() {
    let place = Place::new().await;
    let own = format!("{NAME}-probes");
    let mut lease = Lease::default();
    lease.metadata.name = Some(own.clone());
    lease.spec = Some(LeaseSpec {
        holder_identity: Some("another".to_owned()),
        lease_duration_seconds: Some(3600),
        ..LeaseSpec::default()
    });
    place.api::<Lease>().create(&PostParams::default(), &lease).await.unwrap();
    place.create_probe("one", "ok").await;
    let (prober, repeating) = (Prober::default(), Echoer::default());
    let (probe_runs, echo_runs) = (prober.runs.clone(), repeating.runs.clone());
    let program = Operator::new("konverge-leading", "0")
        .controller(Controller::new(prober).own_lease())
        .controller(Controller::new(repeating));
    let namespace = format!("--lease-namespace={}", place.namespace);
    let running = place.run(program, &["--leader-election", &namespace]).await;
    let echo = Echo::new("loud", EchoSpec { text: "hello".to_owned() });
    place.api::<Echo>().create(&PostParams::default(), &echo).await.unwrap();
    echo_runs.reach("loud", 1).await;
    running.measures(&format!(r#"leader_election_master_status{{name="{own}"}} 0"#)).await;
    assert_eq!(probe_runs.counts().len(), 0, "another replica has the lease of this controller");
    // The other replica gives it up; the status shows that this controller writes with its own lease.
    place.merge::<Lease>(&own, json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})).await;
    place.says("one", |conditions| conditions.is_true("Ready")).await;
    running.end().await.unwrap();
}

/// Waits until the queue of a standby has each of these objects for its reasons, and returns their priorities.
async fn priorities(standby: &Running, place: &Place, expected: &[(&str, &[&str])]) -> Vec<String> {
    let shown = eventually(LIMIT, async || {
        let queues: Value = serde_json::from_str(&standby.get("/debug/queues").await.1).unwrap();
        let probes = queues.as_array().unwrap().iter().find(|queue| queue["queue"] == "probes").unwrap();
        let find = |(name, reasons): &(&str, &[&str])| {
            let key = format!("{}/{name}", place.namespace);
            let waiting = probes["objects"].as_array().unwrap().iter().find(|waiting| waiting["object"] == key)?;
            (waiting["reasons"] == json!(reasons)).then(|| waiting["priority"].as_str().unwrap().to_owned())
        };
        expected.iter().map(find).collect()
    });
    let Ok(shown) = shown.await else { panic!("{}", standby.get("/debug/queues").await.1) };
    shown
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exists_at_the_start_has_low_priority_and_what_changes_then_has_not() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    for name in ["listed", "parent", "watching"] {
        place.create_probe(name, "one").await;
    }
    let echo = Echo::new("loud", EchoSpec { text: "watching".to_owned() });
    place.api::<Echo>().create(&PostParams::default(), &echo).await.unwrap();
    let program = || {
        let keys = |echo: &Echo, _: &_| [ObjectKey { namespace: echo.namespace(), name: echo.spec.text.clone() }];
        let controller = Controller::new(Texts).owns::<ConfigMap>().watches(Watch::<Echo>::new(), keys);
        Operator::new("konverge-low", "0").controller(controller)
    };
    let namespace = format!("--lease-namespace={}", place.namespace);
    let arguments = ["--namespace", &place.namespace, "--leader-election", &namespace, "--debug-queues"];
    let _leader = run_as(cluster.kubeconfig(), program(), &arguments).await;
    for name in ["listed", "parent", "watching"] {
        place.says(name, |conditions| conditions.is_true("Ready")).await;
    }
    // The objects come first, so that what else there is finds them.
    let proxy = FaultProxy::start(cluster.run_directory(), cluster.kubeconfig()).await.unwrap();
    let others =
        "{ when: { verbs: [list, watch], resources: [configmaps, echo*.test.konverge.dev] }, then: { delay: 1s } }";
    proxy.set(Plan::parse(&format!("rules: [{others}]")).unwrap()).unwrap();
    let standby = run_as(proxy.kubeconfig(), program(), &arguments).await;
    let of_all = ["child", "listed"];
    let watched = ["child", "listed", "watched"];
    let low = priorities(&standby, &place, &[("listed", &of_all), ("parent", &of_all), ("watching", &watched)]).await;
    assert_eq!(low, ["low", "low", "low"]);

    proxy.clear();
    place.merge::<Probe>("listed", json!({"spec": {"behave": "two"}})).await;
    place.merge::<ConfigMap>("parent-text", json!({"data": {"more": "of another client"}})).await;
    place.merge::<Echo>("loud", json!({"metadata": {"labels": {"changed": "yes"}}})).await;
    let changed = ["changed", "child", "listed"];
    let expected: [(&str, &[&str]); 1] = [("listed", &changed)];
    assert_eq!(priorities(&standby, &place, &expected).await, ["normal"]);
    let normal = eventually(LIMIT, async || {
        let priorities = priorities(&standby, &place, &[("parent", &of_all), ("watching", &watched)]).await;
        (priorities == ["normal", "normal"]).then_some(())
    });
    normal.await.expect("what changed has normal priority");
}

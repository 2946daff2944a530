//! Several controllers of different kinds in one program.

use std::collections::BTreeSet;

use konverge::{Operator, prelude::*};
use kube::api::PostParams;

use crate::stage::{Echo, EchoSpec, Echoer, Place, Prober, control_plane, run_as};

const PROGRAM: &str = "konverge-several";

/// Both controllers look at the same config maps, and each has its own kind.
fn program(first: Prober, second: Echoer) -> Operator {
    let first = Controller::new(first).watches::<ConfigMap, _>(Selection::default(), |_, probes| probes.keys());
    let second = Controller::new(second).watches::<ConfigMap, _>(Selection::default(), |_, echos| echos.keys());
    Operator::new(PROGRAM, "0").controller(first).controller(second)
}

async fn create_echo(place: &Place, name: &str, text: &str) {
    let echo = Echo::new(name, EchoSpec { text: text.to_owned() });
    place.api::<Echo>().create(&PostParams::default(), &echo).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn row_28_two_controllers_share_a_client_caches_a_port_and_a_lease() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    let (first, second) = (Prober::default(), Echoer::default());
    let (of_first, of_second) = (first.runs.clone(), second.runs.clone());
    let manifest = program(Prober::default(), Echoer::default()).generate(&place.namespace).unwrap().manifest();
    let account = cluster.install(PROGRAM, &place.namespace, &manifest).await.unwrap();
    let lease = format!("--lease-namespace={}", place.namespace);
    let arguments = ["--namespace", &place.namespace, "--leader-election", &lease];
    let running = run_as(account.kubeconfig(), program(first, second), &arguments).await;

    place.create_probe("one", "ok").await;
    create_echo(&place, "one", "hello").await;
    of_first.reach("one", 1).await;
    of_second.reach("one", 1).await;
    // A change of what both look at wakes both.
    place.create_config_map("shared", &[]).await;
    assert!(of_first.reach("one", 2).await[1].reasons.contains(&"watched"));
    assert!(of_second.reach("one", 2).await[1].reasons.contains(&"watched"));

    // One port tells of both.
    let (_, ready) = running.get("/readyz?verbose").await;
    let (_, metrics) = running.get("/metrics").await;
    for part in ["probes", "echos"] {
        assert!(ready.contains(&format!("[+]cache {part} ok")), "{ready}");
        assert!(metrics.contains(&format!("controller_runtime_max_concurrent_reconciles{{controller=\"{part}\"}}")));
    }
    running.end().await.unwrap();

    // One client, with one series for all; one list of what both look at; one lease.
    assert_eq!(metrics.matches("# TYPE rest_client_requests").count(), 1, "{metrics}");
    let log = cluster.audit_log().unwrap();
    log.catch_up(&place.client).await.unwrap();
    let requests = account.requests(&log).unwrap();
    let lists = |resource: &str| {
        requests.iter().filter(|request| request.verb == "list" && request.object_ref.resource == resource).count()
    };
    assert_eq!(["configmaps", "probes", "echos"].map(lists), [1, 1, 1]);
    let leases = requests.iter().map(|request| &request.object_ref).filter(|object| object.resource == "leases");
    let leases: BTreeSet<&str> = leases.map(|lease| lease.name.as_str()).filter(|name| !name.is_empty()).collect();
    assert_eq!(leases, BTreeSet::from(["konverge-several-leader"]));
    assert!(requests.iter().all(|request| request.response_status.code != 403), "{requests:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_01_stopping_lets_the_runs_of_both_end_and_report() {
    let (place, first, second) = (Place::new().await, Prober::default(), Echoer::default());
    let (of_first, of_second) = (first.runs.clone(), second.runs.clone());
    let running = place.run(program(first, second), &[]).await;
    place.create_probe("slow", "slow").await;
    create_echo(&place, "slow", "slow").await;
    of_first.reach("slow", 1).await;
    of_second.reach("slow", 1).await;
    running.end().await.unwrap();
    place.says("slow", |conditions| conditions.is_true("Ready")).await;
    let echo = place.api::<Echo>().get("slow").await.unwrap();
    assert!(echo.status.unwrap().conditions.is_true("Ready"));
}

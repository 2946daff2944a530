//! A leader that leads no more takes nothing away in Vault: cut off from the API server, or asleep for longer than its lease (F13; I12).

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    jiff::{SignedDuration, Timestamp},
};
use konverge_testkit::{Process, eventually, fault_proxy::FaultProxy, http_get};
use kube::Api;
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use crate::{
    front::{self, FrontAction, FrontRequest},
    stage::{SOON, Stage, View, until},
};

/// From the end of a leader to work that the next has done, on a machine that builds meanwhile.
const TAKEOVER: Duration = Duration::from_mins(1);

/// So slow is Vault that the objects keep the workers of a leader busy for longer than a lease lasts.
const SLOW: Duration = Duration::from_millis(600);
const OBJECTS: usize = 60;
const WORKERS: &str = "3";

/// Deleted while the leader falls asleep: one for each worker.
const FEW: usize = 3;

/// An operator that elects, of an installation of its own.
async fn start(stage: &Stage, kubeconfig: &Path, namespace: &str, vault: &str) -> Process {
    let (spec, health, _) = stage.operator(kubeconfig, namespace, vault);
    let spec = spec.args(["-leader-elect", "-workers", WORKERS]);
    let mut process = Process::start(stage.plane.run_directory(), spec).unwrap();
    let is_ready = || async { http_get(&health, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
    process.ready("become ready", SOON, is_ready).await.unwrap();
    process
}

async fn lease(view: &View, home: &str) -> LeaseSpec {
    let leases = Api::<Lease>::namespaced(view.client.clone(), home);
    leases.get("vault-sync-operator.io").await.unwrap().spec.unwrap()
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("db-{number}"))
}

async fn make(view: &View, count: usize, value: &str) {
    for name in names(count) {
        view.secret(&name, &[("n", value)], Some(&view.path(&name))).await.unwrap();
    }
    for name in names(count) {
        let path = view.path(&name);
        until(&format!("{name} is in sync"), async || view.is_synced("Secret", &name, &[&path]).await).await;
    }
}

async fn are_gone(view: &View, count: usize) {
    for name in names(count) {
        until(&format!("{name} is gone"), async || view.is_gone("Secret", &name).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f13_cut_off_from_the_api_server_it_stops_before_another_may_lead() {
    let stage = Stage::shared().await;
    let (home, kubeconfig) = stage.another(|manifest| manifest).await;
    let namespace = stage.plane.namespace("cut-off").await.unwrap();
    let view = stage.view(&namespace).await;
    let (is_slow, slow) = watch::channel(false);
    // The requests that reached Vault, and their times.
    let reached = Arc::new(Mutex::new(Vec::<(Timestamp, FrontRequest)>::new()));
    let told = Arc::clone(&reached);
    let decide = move |asked: FrontRequest| {
        let (slow, told) = (*slow.borrow(), Arc::clone(&told));
        async move {
            if slow && asked.is_write() {
                sleep(SLOW).await;
                told.lock().unwrap().push((Timestamp::now(), asked));
            }
            FrontAction::Passes
        }
        .boxed()
    };
    let vault = front::serve(&stage.server, Box::new(decide)).await.unwrap();
    let proxy = FaultProxy::start(stage.plane.run_directory(), &kubeconfig).await.unwrap();
    let mut leader = start(stage, proxy.kubeconfig(), &namespace, &vault).await;
    make(&view, OBJECTS, "1").await;
    let standby = start(stage, &kubeconfig, &namespace, stage.server.address()).await;
    let held_by = lease(&view, &home).await.holder_identity;

    // Nothing but Vault is needed to delete what is known to be deleted.
    is_slow.send(true).unwrap();
    for name in names(OBJECTS) {
        view.delete("Secret", &name).await.unwrap();
    }
    until("it deletes", async || Ok(!reached.lock().unwrap().is_empty())).await;
    proxy.down_until_cleared();
    let cut = Timestamp::now();
    let held = lease(&view, &home).await;
    leader.ended(TAKEOVER).await.expect("it finds that it leads no more");
    assert_eq!(held.holder_identity, held_by, "it led when it was cut off");
    let lasts = SignedDuration::from_secs(held.lease_duration_seconds.unwrap().into());
    let free = held.renew_time.unwrap().0 + lasts;

    are_gone(&view, OBJECTS).await;
    assert_ne!(lease(&view, &home).await.holder_identity, held_by, "the other one leads");
    let reached = std::mem::take(&mut *reached.lock().unwrap());
    let last = reached.last().unwrap().0;
    assert!(last > cut, "it went on for a while: {last} and not only until {cut}");
    assert!(last < free, "the last write came at {last}, and another could lead from {free} on");
    let deleted = reached.iter().filter(|(_, asked)| asked.method == "DELETE").count();
    assert!(deleted < OBJECTS, "it would have had more to delete");
    for name in names(OBJECTS) {
        let path = view.path(&name);
        assert_eq!(view.read(&path).await.unwrap(), None, "{path}");
    }
    drop(standby);
}

/// The outcome for a leader that was suspended between its read of Vault and its write.
struct Slept {
    view: View,
    /// Its writes after it resumed.
    written: Vec<FrontRequest>,
    _standby: Process,
}

/// Puts a leader to sleep when it has looked at each path because of `begin`, leads on with another until `done`, and wakes it.
async fn sleeps(name: &str, begin: impl AsyncFn(&View), done: impl AsyncFn(&View)) -> Slept {
    let stage = Stage::shared().await;
    let (_, kubeconfig) = stage.another(|manifest| manifest).await;
    let namespace = stage.plane.namespace(name).await.unwrap();
    let view = stage.view(&namespace).await;
    // From when on reads wait, and whether they may go on.
    let (phase, phases) = watch::channel((false, true));
    let (asks, mut asked) = mpsc::unbounded_channel();
    let written = Arc::new(Mutex::new(Vec::<FrontRequest>::new()));
    let told = Arc::clone(&written);
    let decide = move |asked: FrontRequest| {
        let (mut phases, asks, told) = (phases.clone(), asks.clone(), Arc::clone(&told));
        async move {
            if phases.borrow().0 && asked.is_write() {
                told.lock().unwrap().push(asked);
            } else if phases.borrow().0 && asked.is_about_a_secret() {
                asks.send(asked.path).unwrap();
                phases.wait_for(|(_, may_go_on)| *may_go_on).await.unwrap();
            }
            FrontAction::Passes
        }
        .boxed()
    };
    let vault = front::serve(&stage.server, Box::new(decide)).await.unwrap();
    let mut leader = start(stage, &kubeconfig, &namespace, &vault).await;
    make(&view, FEW, "1").await;

    phase.send((true, false)).unwrap();
    begin(&view).await;
    let mut looked = BTreeSet::new();
    while looked.len() < FEW {
        looked.insert(tokio::time::timeout(SOON, asked.recv()).await.unwrap().unwrap());
    }
    leader.suspend().unwrap();
    phase.send((true, true)).unwrap();
    let standby = start(stage, &kubeconfig, &namespace, stage.server.address()).await;
    done(&view).await;

    leader.wake().unwrap();
    leader.ended(TAKEOVER).await.expect("it finds that it leads no more");
    let written = written.lock().unwrap().clone();
    Slept { view, written, _standby: standby }
}

#[tokio::test(flavor = "multi_thread")]
async fn f13_one_that_sleeps_before_a_deletion_deletes_nothing_when_it_wakes() {
    let begin = async |view: &View| {
        for name in names(FEW) {
            view.delete("Secret", &name).await.unwrap();
        }
    };
    let done = async |view: &View| {
        let gone = eventually(TAKEOVER, || async {
            for name in names(FEW) {
                if !view.is_gone("Secret", &name).await.unwrap() {
                    return None;
                }
            }
            Some(())
        });
        gone.await.expect("the next leader lets them go");
        make(view, FEW, "2").await;
    };
    let Slept { view, written, _standby } = sleeps("deposed", begin, done).await;
    assert!(written.is_empty(), "it went on with what it had begun: {written:?}");
    for name in names(FEW) {
        let path = view.path(&name);
        assert!(view.holds(&path, "n", "2").await.unwrap(), "{path} is what was written after");
        assert_eq!(view.versions(&path).await.unwrap(), (2, true), "{path}");
    }
}

/// Two things keep it from that, and each is enough: it asks the lease's clock before it writes, and it ends where it is. Vault would refuse it
/// besides, because a write names the version that was read.
#[tokio::test(flavor = "multi_thread")]
async fn f13_one_that_sleeps_before_a_write_writes_nothing_when_it_wakes() {
    let rotate = async |view: &View, value: &str| {
        for name in names(FEW) {
            view.secret(&name, &[("n", value)], Some(&view.path(&name))).await.unwrap();
        }
    };
    let done = async |view: &View| {
        let arrived = eventually(TAKEOVER, || async {
            for name in names(FEW) {
                if !view.holds(&view.path(&name), "n", "2").await.unwrap() {
                    return None;
                }
            }
            Some(())
        });
        arrived.await.expect("the next leader writes it");
    };
    let Slept { view, written, _standby } = sleeps("overslept", async |view| rotate(view, "2").await, done).await;
    assert!(written.is_empty(), "it went on with what it had begun: {written:?}");
    rotate(&view, "3").await;
    for name in names(FEW) {
        let path = view.path(&name);
        until(&format!("{path} holds what came after"), async || view.holds(&path, "n", "3").await).await;
        assert_eq!(view.versions(&path).await.unwrap(), (3, true), "{path}");
    }
}

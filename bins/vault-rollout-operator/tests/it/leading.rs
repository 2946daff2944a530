//! One leader after the other under load (F16; I5, I6), and two at the same time of which one lags behind (F13; I12).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use konverge_testkit::{
    eventually,
    fault_proxy::{FaultProxy, Plan},
};
use kube::Api;
use tokio::time::{Instant, sleep};

use crate::{
    stage::{ACCOUNT, Running, Stage, until},
    view::View,
};

/// How a leader ends: terminated, killed, or stopped for longer than its lease and then resumed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Told,
    Killed,
    Asleep,
}

/// A lease that is not given back lasts for 15 s, so that only four are of that kind.
const ENDS: [End; 10] = [
    End::Told,
    End::Killed,
    End::Told,
    End::Asleep,
    End::Told,
    End::Told,
    End::Asleep,
    End::Told,
    End::Asleep,
    End::Told,
];

/// From the end of a leader to work that the next has done, on a machine that builds meanwhile.
const TAKEOVER: Duration = Duration::from_mins(2);

/// Secrets that are changed all the time.
const RESTLESS: usize = 5;

/// The arguments of each leader.
const ARGUMENTS: [&str; 3] = ["--leader-elect", "--runaway-changes", "0"];

/// Somebody who changes each Secret as soon as its user has been rolled for its last change.
struct Load {
    view: View,
    done: [AtomicUsize; RESTLESS],
    is_over: AtomicBool,
}

impl Load {
    /// Until it is over. Each change counts when it has been rolled, and there has to be one rollout for each.
    async fn change(&self, number: usize) {
        while !self.is_over.load(Ordering::SeqCst) {
            let next = self.done[number].load(Ordering::SeqCst) + 1;
            self.view.secret(&format!("db-{number}"), &next.to_string()).await.unwrap();
            let web = format!("web-{number}");
            let rolled = async || self.view.is_rolled(&web, next).await.unwrap().then_some(());
            let rolled = eventually(TAKEOVER, rolled).await;
            assert!(rolled.is_ok(), "not once for change {next}: {}", self.seen(number).await);
            self.done[number].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until each has had one more change, which begins after this. As a kubelet would, starts again which of the replicas has ended:
    /// one that finds that its lease has run out does, also where the whole machine stood still. Returns whether there was any.
    async fn goes_on(&self, when: &str, replicas: &mut [&mut Running]) -> bool {
        let done = || self.done.iter().map(|done| done.load(Ordering::SeqCst)).collect::<Vec<_>>();
        let (before, deadline) = (done(), Instant::now() + TAKEOVER);
        let mut has_ended = false;
        while !done().iter().zip(&before).all(|(done, before)| *done > before + 1) {
            for replica in &mut *replicas {
                has_ended |= replica.process.status().is_some();
                replica.process.start_again().unwrap();
            }
            if Instant::now() > deadline {
                let behind = (0..RESTLESS).filter(|number| done()[*number] <= before[*number] + 1);
                let behind = futures::future::join_all(behind.map(|number| self.seen(number))).await;
                panic!("{when} it does not go on: {before:?} have become {:?}; {behind:#?}", done());
            }
            sleep(Duration::from_millis(100)).await;
        }
        has_ended
    }

    /// The observable state of one of them.
    async fn seen(&self, number: usize) -> String {
        let (web, done) = (format!("web-{number}"), self.done[number].load(Ordering::SeqCst));
        let (seen, templates) = (self.view.seen("Deployment", &web).await, self.view.templates(&web).await);
        let is_ready = self.view.is_ready(&web).await;
        let events = self.view.events(&web).await;
        format!("{web} after {done} changes: {seen:?}, {templates:?} ReplicaSets, ready: {is_ready:?}, {events:?}")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f16_ten_failovers_under_load_lose_no_change_and_roll_each_once() {
    let stage = Stage::shared().await;
    let view = stage.view("failover").await;
    for number in 0..RESTLESS {
        view.secret(&format!("db-{number}"), "0").await.unwrap();
        view.deployment(&format!("web-{number}"), &format!("db-{number}")).await.unwrap();
    }
    let leases = Api::<Lease>::namespaced(view.client.clone(), &stage.home);
    let holder = async || {
        let lease = leases.get_opt(ACCOUNT).await.unwrap();
        lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty())
    };
    let load = Arc::new(Load { view, done: Default::default(), is_over: AtomicBool::new(false) });
    let namespace = &load.view.namespace;
    let mut leader = stage.start(namespace, &ARGUMENTS).await;
    for number in 0..RESTLESS {
        // A change before the first observation is no change.
        load.view.rolled(&format!("web-{number}"), 0).await;
    }
    let changes: Vec<_> = (0..RESTLESS)
        .map(|number| {
            let load = Arc::clone(&load);
            tokio::spawn(async move { load.change(number).await })
        })
        .collect();
    for (number, end) in ENDS.into_iter().enumerate() {
        let (before, mut standby) = loop {
            let mut standby = stage.start(namespace, &ARGUMENTS).await;
            if !load.goes_on(&format!("before end {number}"), &mut [&mut leader, &mut standby]).await {
                break (holder().await.expect("somebody leads"), standby);
            }
            // Which of the two leads now is not known.
            drop(standby);
            load.goes_on("alone", &mut [&mut leader]).await;
        };
        match end {
            End::Told => drop(leader.process.terminate(Duration::from_secs(30)).await.unwrap()),
            End::Killed => leader.process.kill(),
            End::Asleep => leader.process.suspend().unwrap(),
        }
        let taken = || async { holder().await.filter(|now| *now != before) };
        eventually(TAKEOVER, taken).await.unwrap_or_else(|_| panic!("nobody took over from one that was {end:?}"));
        if end == End::Asleep {
            load.goes_on(&format!("while leader {number} is asleep"), &mut [&mut standby]).await;
            leader.process.wake().unwrap();
            leader.process.ended(TAKEOVER).await.expect("it finds that it leads no more");
        }
        load.goes_on(&format!("after end {number}, {end:?},"), &mut [&mut standby]).await;
        leader = standby;
    }
    load.is_over.store(true, Ordering::SeqCst);
    for change in changes {
        change.await.unwrap();
    }
    leader.settled().await;
    for number in 0..RESTLESS {
        let (web, changes) = (format!("web-{number}"), load.done[number].load(Ordering::SeqCst));
        until(&format!("{web} was rolled {changes} times"), async || load.view.is_rolled(&web, changes).await).await;
    }
}

/// Long enough for another to have rolled, and for its rollout to be seen.
const SLOWLY: &str = "
rules:
- { when: { phase: body, verbs: [watch], resources: [secrets] }, then: { delay: 3s } }
";

#[tokio::test(flavor = "multi_thread")]
async fn f13_who_has_not_seen_a_change_does_not_roll_back_what_another_has_rolled_for_it() {
    let stage = Stage::shared().await;
    let view = stage.view("behind").await;
    view.secret("db", "0").await.unwrap();
    view.deployment("web", "db").await.unwrap();
    let proxy = FaultProxy::start(stage.plane.run_directory(), stage.kubeconfig()).await.unwrap();
    let ahead = stage.start(&view.namespace, &[]).await;
    view.rolled("web", 0).await;
    let behind = stage.start_through(proxy.kubeconfig(), &view.namespace, &[]).await;
    until("it has read the Secret", async || Ok(behind.metric("konverge_roll_checks_total", "").await > 0.5)).await;
    proxy.set(Plan::parse(SLOWLY).unwrap()).unwrap();
    for round in 1..=3 {
        view.secret("db", &round.to_string()).await.unwrap();
        view.rolled("web", round).await;
    }
    until("the watch of the Secret has told", async || Ok(proxy.fired() >= vec![1])).await;
    for operator in [&ahead, &behind] {
        operator.settled().await;
    }
    assert!(view.is_rolled("web", 3).await.unwrap(), "{:?}", view.seen("Deployment", "web").await);
}

//! Several at the same time: the effect is that of one (F13, F16; I5, I6, I12, A7).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use konverge_testkit::{Process, eventually};
use kube::Api;
use tokio::time::{sleep, timeout};

use crate::{
    stage::{ACCOUNT, QUIET, Stage, until},
    view::View,
};

/// So many Secrets, of which each has two users.
const SECRETS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn two_that_both_think_they_lead_roll_what_one_would() {
    let stage = Stage::shared().await;
    let view = stage.view("two").await;
    let names: Vec<_> = (0..SECRETS).flat_map(|number| ["one", "two"].map(|user| format!("{user}-{number}"))).collect();
    let rotate = async |round: usize| {
        for number in 0..SECRETS {
            view.secret(&format!("db-{number}"), &round.to_string()).await.unwrap();
        }
    };
    rotate(0).await;
    for name in &names {
        view.deployment(name, &format!("db-{}", name.split_once('-').unwrap().1)).await.unwrap();
    }
    let _operators = [stage.start(&view.namespace, &[]).await, stage.start(&view.namespace, &[]).await];
    for round in 0..=3 {
        if round > 0 {
            rotate(round).await;
        }
        for name in &names {
            view.rolled(name, round).await;
        }
    }
    let log = stage.plane.audit_log().unwrap();
    log.catch_up(&view.client).await.unwrap();
    let log = log.from_now().unwrap();
    sleep(QUIET).await;
    log.catch_up(&view.client).await.unwrap();
    let written: Vec<_> = log
        .entries_of(&stage.account())
        .unwrap()
        .into_iter()
        .filter(|entry| entry.is_mutating() && entry.object_ref.namespace == view.namespace)
        .filter(|entry| entry.object_ref.resource != "events")
        .collect();
    assert!(written.is_empty(), "they do not answer each other: {written:?}");
    for name in &names {
        assert!(view.is_rolled(name, 3).await.unwrap(), "{:?}", view.seen("Deployment", name).await);
    }
}

/// What ends a leader: told to, killed, or stopped for longer than its lease, after which it goes on as if nothing had been.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Told,
    Killed,
    Asleep,
}

/// A lease that is not given back lasts for 15 s, so that only two are of that kind.
const ENDS: [End; 10] =
    [End::Told, End::Killed, End::Told, End::Told, End::Told, End::Asleep, End::Told, End::Told, End::Told, End::Told];

/// From the end of a leader to work that the next has done, on a machine that builds meanwhile.
const TAKEOVER: Duration = Duration::from_mins(1);

/// Secrets that are changed all the time.
const RESTLESS: usize = 5;

/// Somebody who changes each Secret as soon as its user has been rolled for its last change.
struct Load {
    view: View,
    done: [AtomicUsize; RESTLESS],
    is_over: AtomicBool,
}

impl Load {
    /// Until it is over. Each change counts when it has been rolled, and there has to be one rollout for each.
    async fn change(&self, number: usize) {
        let (secret, web) = (format!("db-{number}"), format!("web-{number}"));
        while !self.is_over.load(Ordering::SeqCst) {
            let next = self.done[number].load(Ordering::SeqCst) + 1;
            self.view.secret(&secret, &next.to_string()).await.unwrap();
            let is_rolled = async {
                while !self.view.is_rolled(&web, next).await.unwrap() {
                    sleep(Duration::from_millis(100)).await;
                }
            };
            let is_rolled = timeout(TAKEOVER, is_rolled).await.is_ok();
            assert!(
                is_rolled,
                "not once for change {next} of {secret}: {:?}",
                self.view.seen("Deployment", &web).await
            );
            self.done[number].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until each has had one more change, which begins after this.
    async fn goes_on(&self) {
        let before: Vec<_> = self.done.iter().map(|done| done.load(Ordering::SeqCst)).collect();
        let is_so = || async {
            let mut counts = self.done.iter().zip(&before);
            counts.all(|(done, before)| done.load(Ordering::SeqCst) > before + 1).then_some(())
        };
        eventually(TAKEOVER, is_so).await.unwrap();
    }
}

fn signal(process: &Process, name: &str) {
    let pid = process.pid().unwrap().to_string();
    assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_failovers_under_load_lose_no_change_and_roll_each_once() {
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
    let mut leader = stage.start(namespace, &["--leader-elect", "--runaway-changes", "0"]).await;
    for number in 0..RESTLESS {
        // What is changed before it was first seen is no change.
        load.view.rolled(&format!("web-{number}"), 0).await;
    }
    let changes: Vec<_> = (0..RESTLESS)
        .map(|number| {
            let load = Arc::clone(&load);
            tokio::spawn(async move { load.change(number).await })
        })
        .collect();
    for end in ENDS {
        let standby = stage.start(namespace, &["--leader-elect", "--runaway-changes", "0"]).await;
        let before = holder().await.expect("somebody leads");
        load.goes_on().await;
        assert_eq!(holder().await.as_ref(), Some(&before), "who stands by does not take what is held");
        match end {
            End::Told => drop(leader.process.terminate(Duration::from_secs(30)).await.unwrap()),
            End::Killed => leader.process.kill(),
            End::Asleep => signal(&leader.process, "-STOP"),
        }
        let taken = || async { holder().await.filter(|now| *now != before) };
        eventually(TAKEOVER, taken).await.unwrap_or_else(|_| panic!("nobody took over from one that was {end:?}"));
        if end == End::Asleep {
            load.goes_on().await;
            signal(&leader.process, "-CONT");
            leader.process.ended(TAKEOVER).await.expect("it finds that it leads no more");
        }
        load.goes_on().await;
        leader = standby;
    }
    load.is_over.store(true, Ordering::SeqCst);
    for change in changes {
        change.await.unwrap();
    }
    sleep(QUIET).await;
    for number in 0..RESTLESS {
        let (web, changes) = (format!("web-{number}"), load.done[number].load(Ordering::SeqCst));
        until(&format!("{web} was rolled {changes} times"), async || load.view.is_rolled(&web, changes).await).await;
    }
}

//! Several at the same time: the effect is that of one (F13, F16; I12).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use konverge_testkit::eventually;
use kube::Api;
use tokio::time::{sleep, timeout};

use crate::stage::{Result, Stage, View, until};

/// The number of objects of each kind.
const OBJECTS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn two_that_both_think_they_lead_write_what_one_would() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("two").await.unwrap();
    let view = stage.view(&namespace).await;
    let start = async || stage.start(&namespace, |spec| spec.arg("-enable-metrics-auth=false")).await;
    let operators = [start().await, start().await];
    let in_sync = async |round: &str| -> Result<bool> {
        for number in 0..OBJECTS {
            let (secret, app) = (format!("db-{number}"), format!("app-{number}"));
            let whole = view.path(&secret);
            let used = view.path(&format!("{app}/{secret}"));
            let is_so = view.is_synced("Secret", &secret, &[&whole]).await?
                && view.is_synced("Deployment", &app, &[&used]).await?
                && view.holds(&whole, "n", round).await?
                && view.holds(&used, "n", round).await?;
            if !is_so {
                return Ok(false);
            }
        }
        Ok(true)
    };
    for round in ["1", "2", "3"] {
        for number in 0..OBJECTS {
            let (secret, app) = (format!("db-{number}"), format!("app-{number}"));
            view.secret(&secret, &[("n", round)], Some(&view.path(&secret))).await.unwrap();
            if round == "1" {
                view.deployment(&app, &secret, &view.path(&app)).await.unwrap();
            }
        }
        until(&format!("all hold {round}"), async || in_sync(round).await).await;
    }
    let settled = async || {
        for operator in &operators {
            operator.settled().await;
        }
    };
    // The records follow the writes to Vault.
    settled().await;
    let log = stage.plane.audit_log().unwrap();
    log.catch_up(&view.client).await.unwrap();
    let log = log.from_now().unwrap();
    settled().await;
    log.catch_up(&view.client).await.unwrap();
    let written: Vec<_> = log
        .entries_of(&stage.account())
        .unwrap()
        .into_iter()
        .filter(|entry| entry.is_mutating() && entry.object_ref.namespace == namespace)
        .filter(|entry| entry.object_ref.resource != "events")
        .collect();
    assert!(written.is_empty(), "they do not answer each other: {written:?}");
    for number in 0..OBJECTS {
        let (secret, app) = (format!("db-{number}"), format!("app-{number}"));
        for path in [view.path(&secret), view.path(&format!("{app}/{secret}"))] {
            assert_eq!(view.versions(&path).await.unwrap(), (3, true), "{path}");
        }
        view.delete("Deployment", &app).await.unwrap();
        view.delete("Secret", &secret).await.unwrap();
    }
    for number in 0..OBJECTS {
        let (secret, app) = (format!("db-{number}"), format!("app-{number}"));
        until("the objects are gone", async || {
            Ok(view.is_gone("Secret", &secret).await? && view.is_gone("Deployment", &app).await?)
        })
        .await;
        for path in [view.path(&secret), view.path(&format!("{app}/{secret}"))] {
            assert_eq!(view.read(&path).await.unwrap(), None);
            assert_eq!(view.versions(&path).await.unwrap(), (3, false), "{path}");
        }
    }
}

/// How a leader ends: terminated, killed, or stopped for longer than its lease and then resumed.
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
const RESTLESS: usize = 6;

/// Somebody who changes each Secret as soon as its last change is in Vault.
struct Load {
    view: View,
    done: [AtomicUsize; RESTLESS],
    is_over: AtomicBool,
}

impl Load {
    fn path(&self, number: usize) -> String {
        self.view.path(&format!("db-{number}"))
    }

    /// Until it is over. Each change counts when it has arrived.
    async fn change(&self, number: usize) {
        let (name, path) = (format!("db-{number}"), self.path(number));
        while !self.is_over.load(Ordering::SeqCst) {
            let next = (self.done[number].load(Ordering::SeqCst) + 1).to_string();
            self.view.secret(&name, &[("n", &next)], Some(&path)).await.unwrap();
            let arrives = async {
                while !self.view.holds(&path, "n", &next).await.unwrap() {
                    sleep(Duration::from_millis(50)).await;
                }
            };
            timeout(TAKEOVER, arrives).await.unwrap_or_else(|_| panic!("change {next} of {name} did not arrive"));
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

#[tokio::test(flavor = "multi_thread")]
async fn ten_failovers_under_load_lose_no_change() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("failover").await.unwrap();
    let view = stage.view(&namespace).await;
    let leases = Api::<Lease>::namespaced(view.client.clone(), &stage.home);
    let holder = async || {
        let lease = leases.get_opt("vault-sync-operator.io").await.unwrap();
        lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty())
    };
    let load = Arc::new(Load { view, done: Default::default(), is_over: AtomicBool::new(false) });
    let mut leader = stage.start(&namespace, |spec| spec.arg("-leader-elect")).await;
    let changes: Vec<_> = (0..RESTLESS)
        .map(|number| {
            let load = Arc::clone(&load);
            tokio::spawn(async move { load.change(number).await })
        })
        .collect();
    for end in ENDS {
        let standby = stage.start(&namespace, |spec| spec.arg("--leader-elect=true")).await;
        let before = holder().await.expect("somebody leads");
        load.goes_on().await;
        assert_eq!(holder().await.as_ref(), Some(&before), "who stands by does not take what is held");
        match end {
            End::Told => drop(leader.process.terminate(Duration::from_secs(30)).await.unwrap()),
            End::Killed => leader.process.kill(),
            End::Asleep => leader.process.suspend().unwrap(),
        }
        let taken = || async { holder().await.filter(|now| *now != before) };
        eventually(TAKEOVER, taken).await.unwrap_or_else(|_| panic!("nobody took over from one that was {end:?}"));
        if end == End::Asleep {
            load.goes_on().await;
            leader.process.wake().unwrap();
            leader.process.ended(TAKEOVER).await.expect("it finds that it leads no more");
        }
        load.goes_on().await;
        leader = standby;
    }
    load.is_over.store(true, Ordering::SeqCst);
    for change in changes {
        change.await.unwrap();
    }
    for number in 0..RESTLESS {
        let (name, path) = (format!("db-{number}"), load.path(number));
        let changes = load.done[number].load(Ordering::SeqCst) as u64;
        let (versions, is_marked) = load.view.versions(&path).await.unwrap();
        // Nor did one that woke write what it had read before it fell asleep.
        assert!(is_marked && versions == changes, "{changes} changes of {name}, {versions} versions");
        until(&format!("{name} is in sync"), async || load.view.is_synced("Secret", &name, &[&path]).await).await;
    }
}

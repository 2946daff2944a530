use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::*;
use crate::lease::tests::LeaseServer;

pub(super) async fn manager() -> Manager {
    Manager::bind(([127, 0, 0, 1], 0).into(), Metrics::new("test", "0")).await.expect("a free port")
}

#[tokio::test(start_paused = true)]
async fn work_on_shutdown_that_hangs_does_not_keep_the_program() {
    let mut manager = manager().await;
    manager.on_shutdown(std::future::pending());
    manager.shutdown().cancel();
    let begun = tokio::time::Instant::now();
    manager.run().await.unwrap();
    assert_eq!(begun.elapsed(), super::ON_SHUTDOWN_WITHIN);
}

#[tokio::test]
async fn a_busy_port_is_named() {
    let first = manager().await;
    let error = Manager::bind(first.address(), Metrics::new("test", "0")).await.err().expect("busy");
    assert!(error.to_string().starts_with(&format!("cannot listen on {}", first.address())), "{error}");
}

#[tokio::test]
async fn a_task_that_ends_or_panics_ends_the_program() {
    let mut ending = manager().await;
    ending.task("short", async {});
    assert!(matches!(ending.run_until_shutdown().await, Err(RunError::TaskEnded { name }) if name == "short"));
    let mut panicking = manager().await;
    panicking.task("loud", async { panic!("on purpose") });
    let error = panicking.run_until_shutdown().await.expect_err("a panic");
    assert_eq!(error.to_string(), "task loud panicked: on purpose");
}

#[test]
fn a_task_takes_its_memory_once() {
    const LARGE: usize = 8 * 1024;
    let large = || {
        let kept = [0_u8; LARGE];
        async move {
            std::future::pending::<()>().await;
            assert!(kept.iter().all(|byte| *byte == 0));
        }
    };
    assert!(size_of_val(&large()) >= LARGE);
    let stop = CancellationToken::new();
    let stopped = size_of_val(&until_stopped(stop.clone(), large()));
    let guarded = size_of_val(&guarded("large".into(), stop, large()));
    for around in [stopped, guarded] {
        assert!(around < LARGE, "{around} bytes");
    }
}

#[tokio::test]
async fn a_task_may_finish_its_work_when_stopped_and_others_are_dropped() {
    let mut manager = manager().await;
    let finished = Arc::new(AtomicBool::new(false));
    let (stop, seen) = (manager.stop_tasks(), Arc::clone(&finished));
    manager.stopping_task("tidy", async move {
        stop.cancelled().await;
        tokio::task::yield_now().await;
        seen.store(true, Ordering::SeqCst);
    });
    manager.task("endless", std::future::pending());
    manager.shutdown().cancel();
    manager.run_until_shutdown().await.expect("a clean end");
    assert!(finished.load(Ordering::SeqCst));
}

#[tokio::test]
async fn the_work_on_shutdown_is_done_last_and_also_after_a_failure() {
    for fails in [false, true] {
        let (mut manager, story) = (manager().await, Story::default());
        let (stop, told) = (manager.stop_tasks(), story.clone());
        manager.stopping_task("tidy", async move {
            stop.cancelled().await;
            told.tell("tidied".to_owned());
        });
        let told = story.clone();
        manager.on_shutdown(async move { told.tell("on shutdown".to_owned()) });
        if fails {
            manager.task("short", async {});
        } else {
            manager.shutdown().cancel();
        }
        assert_eq!(manager.run().await.is_err(), fails);
        assert_eq!(story.told(), ["tidied", "on shutdown"]);
    }
}

#[tokio::test]
async fn what_does_not_end_in_time_is_dropped_and_told() {
    let mut manager = manager().await.grace(Duration::from_millis(20));
    manager.stopping_task("stubborn", std::future::pending());
    manager.shutdown().cancel();
    assert!(matches!(manager.run_until_shutdown().await, Err(RunError::NotInTime { .. })));
}

/// The events, in order.
#[derive(Clone, Default)]
pub(super) struct Story(Arc<std::sync::Mutex<Vec<String>>>);

impl Story {
    pub(super) fn tell(&self, what: String) {
        self.0.lock().expect("no panic").push(what);
    }

    pub(super) fn told(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }

    /// A task that never ends, and tells when it begins and who holds the lease when it is dropped.
    pub(super) async fn task(self, name: &'static str, lease: LeaseServer) {
        struct Dropped(Story, &'static str, LeaseServer);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.tell(format!("{} dropped, held by {}", self.1, self.2.spec()["holderIdentity"]));
            }
        }
        self.tell(format!("{name} began"));
        let _dropped = Dropped(self, name, lease);
        std::future::pending::<()>().await;
    }

    pub(super) async fn reach(&self, length: usize) {
        let reached = async {
            while self.told().len() < length {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout_at(Instant::now() + Duration::from_secs(20), reached)
            .await
            .unwrap_or_else(|_| panic!("{:?}", self.told()));
    }
}

#[tokio::test]
async fn a_task_of_the_leader_runs_where_the_lease_is_and_nowhere_else() {
    let (lease, story) = (LeaseServer::default(), Story::default());
    let start = async |name: &'static str| {
        let mut manager = manager().await.leader_election(lease.elector(name));
        manager.leader_task("only one", story.clone().task(name, lease.clone()));
        let (checks, shutdown) = (manager.checks().clone(), manager.shutdown());
        let running = tokio::spawn(manager.run_until_shutdown());
        while !checks.ready().passed {
            tokio::task::yield_now().await;
        }
        (running, shutdown)
    };
    let (first, stop_first) = start("first").await;
    story.reach(1).await;
    let (second, _) = start("second").await;
    let (third, stop_third) = start("third").await;
    // A standby that never led ends without a message.
    stop_third.cancel();
    third.await.expect("no panic").expect("a clean end");
    stop_first.cancel();
    first.await.expect("no panic").expect("a clean end");
    story.reach(3).await;
    assert_eq!(story.told(), ["first began", r#"first dropped, held by "first""#, "second began"]);
    lease.hang();
    assert!(matches!(second.await.expect("no panic"), Err(RunError::LeaseLost(_))));
    assert_eq!(story.told().len(), 4, "{:?}", story.told());
}

#[tokio::test]
async fn a_server_that_lets_its_callers_go_does_not_keep_the_lease() {
    let lease = LeaseServer::default();
    let mut manager = manager().await.leader_election(lease.elector("first"));
    let (shutdown, may_end) = (manager.shutdown(), Arc::new(Notify::new()));
    let (begun, ends) = (manager.checks().clone(), Arc::clone(&may_end));
    manager.server_task("webhooks", async move { ends.notified().await });
    let story = Story::default();
    let told = story.clone();
    manager.leader_task("leading", async move {
        told.tell("leads".to_owned());
        std::future::pending::<()>().await;
    });
    let running = tokio::spawn(manager.run_until_shutdown());
    let until = async |holds: &(dyn Fn() -> bool + Sync)| {
        let reached = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout_at(Instant::now() + Duration::from_secs(20), reached).await.expect("in time");
    };
    let holder = || lease.spec()["holderIdentity"].as_str().unwrap_or_default().to_owned();
    story.reach(1).await;
    assert_eq!(holder(), "first");
    shutdown.cancel();
    until(&|| holder().is_empty()).await;
    assert!(!running.is_finished() && !begun.ready().passed, "it still answers");
    may_end.notify_one();
    running.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn without_an_election_a_task_of_the_leader_is_one_like_others() {
    let (mut manager, story) = (manager().await, Story::default());
    let told = story.clone();
    manager.leader_task("short", async move { told.tell("began".to_owned()) });
    assert!(matches!(manager.run_until_shutdown().await, Err(RunError::TaskEnded { name }) if name == "short"));
    assert_eq!(story.told(), ["began"]);
}

/// Says when it started and ends when told.
struct Gate {
    started: Notify,
    go_on: Notify,
    ended: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
#[error("never")]
struct Never;

impl konverge_core::error::Classify for Never {
    fn class(&self) -> konverge_core::error::ErrorClass {
        konverge_core::error::ErrorClass::Permanent
    }

    fn reason(&self) -> &'static str {
        "Never"
    }
}

impl Reconciler for Gate {
    type Key = u8;
    type Error = Never;

    async fn reconcile(&self, _: crate::queue::Request<u8>) -> Result<crate::controller::Action, Never> {
        self.started.notify_one();
        self.go_on.notified().await;
        self.ended.store(true, Ordering::SeqCst);
        Ok(crate::controller::Action::Done)
    }
}

#[tokio::test]
async fn shutdown_makes_unready_and_waits_for_the_run_in_flight_before_it_stops_tasks() {
    let mut manager = manager().await;
    let gate = Arc::new(Gate { started: Notify::new(), go_on: Notify::new(), ended: AtomicBool::new(false) });
    let queue = crate::queue::Queue::new("gate", manager.metrics().queues());
    let controller = Controller::new(Arc::clone(&gate), queue.clone(), manager.metrics().controllers());
    manager.controller("gate", controller);
    let (stop, seen) = (manager.stop_tasks(), Arc::clone(&gate));
    manager.stopping_task("needed until the last run ends", async move {
        stop.cancelled().await;
        assert!(seen.ended.load(Ordering::SeqCst), "stopped too early");
    });
    let (checks, shutdown) = (manager.checks().clone(), manager.shutdown());
    queue.add(1, crate::queue::Priority::Normal, "test");
    let running = tokio::spawn(manager.run_until_shutdown());
    gate.started.notified().await;
    assert!(checks.ready().passed);
    shutdown.cancel();
    while checks.ready().passed {
        tokio::task::yield_now().await;
    }
    assert!(!running.is_finished());
    gate.go_on.notify_one();
    running.await.expect("no panic").expect("a clean end");
    assert!(gate.ended.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_lease_that_is_lost_while_shutting_down_ends_the_runs_in_flight() {
    let server = LeaseServer::default();
    let mut manager = manager().await.leader_election(server.elector("leader"));
    let gate = Arc::new(Gate { started: Notify::new(), go_on: Notify::new(), ended: AtomicBool::new(false) });
    let queue = crate::queue::Queue::new("gate", manager.metrics().queues());
    manager.controller("gate", Controller::new(Arc::clone(&gate), queue.clone(), manager.metrics().controllers()));
    queue.add(1, crate::queue::Priority::Normal, "test");
    let shutdown = manager.shutdown();
    let running = tokio::spawn(manager.run_until_shutdown());
    timeout_at(Instant::now() + Duration::from_secs(20), gate.started.notified()).await.expect("leading in time");
    shutdown.cancel();
    server.hang();
    assert!(matches!(running.await.expect("no panic"), Err(RunError::LeaseLost(_))));
    assert!(!gate.ended.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn what_has_to_be_known_within_a_limit_ends_the_program_if_it_is_not() {
    let limit = Duration::from_secs(120);
    let mut lacking = manager().await;
    lacking.require_within(limit, std::future::pending(), || "probes: the kind is unknown".to_owned());
    let begun = Instant::now();
    let error = lacking.run_until_shutdown().await.expect_err("not synced").to_string();
    assert!(error.starts_with("not all objects were listed within 120s: probes: the kind is unknown;"), "{error}");
    assert!(begun.elapsed() >= limit && begun.elapsed() < limit + Duration::from_secs(40), "{:?}", begun.elapsed());

    let mut complete = manager().await;
    complete.require_within(limit, std::future::ready(()), || unreachable!("it is known"));
    let shutdown = complete.shutdown();
    let running = tokio::spawn(complete.run_until_shutdown());
    tokio::time::sleep(2 * limit).await;
    assert!(!running.is_finished());
    shutdown.cancel();
    running.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn a_controller_with_a_lease_of_its_own_works_while_another_replica_leads_the_program() {
    let (programs, own) = (LeaseServer::default(), LeaseServer::default());
    let other = programs.elector("other");
    let mut other_leads = other.leadership();
    let other = tokio::spawn(other.run(CancellationToken::new()));
    other_leads.acquired().await;

    let mut manager = manager().await.leader_election(programs.elector("this"));
    let mut attempts = Vec::new();
    for (name, elector) in [("shared", None), ("own", Some(own.elector("this")))] {
        let queue = crate::queue::Queue::new(name, manager.metrics().queues());
        queue.add(1, crate::queue::Priority::Normal, "test");
        let (ran, runs) = tokio::sync::watch::channel(false);
        attempts.push(runs);
        let controller = Controller::new(Arc::new(Telling(ran)), queue, manager.metrics().controllers());
        match elector {
            Some(elector) => manager.controller_with_lease(name, controller, elector),
            None => manager.controller(name, controller),
        }
    }
    let running = tokio::spawn(manager.run_until_shutdown());
    let waited = tokio::time::timeout(Duration::from_secs(20), attempts[1].wait_for(|ran| *ran)).await;
    waited.expect("in time").expect("it ran");
    assert!(!*attempts[0].borrow(), "the program does not lead");
    // The lease of one controller that is lost ends the program, as that of the program does.
    own.hang();
    let error = tokio::time::timeout(Duration::from_secs(20), running).await.expect("in time").expect("no panic");
    assert!(matches!(error, Err(RunError::LeaseLost(_))), "{error:?}");
    assert!(!*attempts[0].borrow(), "the program never led");
    other.abort();
}

/// Tells that it ran.
struct Telling(tokio::sync::watch::Sender<bool>);

impl Reconciler for Telling {
    type Key = u32;
    type Error = Never;

    async fn reconcile(&self, _request: crate::Request<u32>) -> Result<crate::Action, Self::Error> {
        self.0.send_replace(true);
        Ok(crate::Action::Done)
    }
}

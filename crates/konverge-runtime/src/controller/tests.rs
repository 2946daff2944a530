use std::{collections::BTreeMap, sync::Mutex};

use tokio::sync::Notify;

use super::*;
use crate::{metrics::Metrics, queue::Priority};

#[derive(Debug, thiserror::Error)]
#[error("failed on purpose")]
struct Failure(ErrorClass, Option<Duration>);

impl Classify for Failure {
    fn class(&self) -> ErrorClass {
        self.0
    }

    fn retry_after(&self) -> Option<Duration> {
        self.1
    }

    fn reason(&self) -> &'static str {
        "OnPurpose"
    }
}

/// Does what its key says, and writes down the attempts.
#[derive(Default)]
struct Scripted {
    attempts: Mutex<BTreeMap<&'static str, Vec<u32>>>,
    gate: Notify,
}

impl Reconciler for Scripted {
    type Key = &'static str;
    type Error = Failure;

    async fn reconcile(&self, request: Request<&'static str>) -> Result<Action, Failure> {
        self.attempts.lock().expect("not poisoned").entry(request.key).or_default().push(request.attempt);
        match request.key {
            "panics" => panic!("on purpose"),
            "hangs" => std::future::pending().await,
            "transient" => Err(Failure(ErrorClass::Transient, None)),
            "permanent" => Err(Failure(ErrorClass::Permanent, None)),
            "told when" => Err(Failure(ErrorClass::After(Duration::from_millis(5)), None)),
            "decided" => Err(Failure(ErrorClass::Permanent, Some(Duration::from_millis(5)))),
            "decided late" => Err(Failure(ErrorClass::Transient, Some(Duration::from_secs(3600)))),
            "periodic" => Ok(Action::After(Duration::from_millis(5))),
            "gated" => {
                self.gate.notified().await;
                Ok(Action::Done)
            }
            _ => Ok(Action::Done),
        }
    }
}

/// A run of which takes much memory.
struct Large;

const LARGE: usize = 8 * 1024;

impl Reconciler for Large {
    type Key = &'static str;
    type Error = Failure;

    async fn reconcile(&self, _: Request<&'static str>) -> Result<Action, Failure> {
        let kept = [0_u8; LARGE];
        tokio::task::yield_now().await;
        assert!(kept.iter().all(|byte| *byte == 0));
        Ok(Action::Done)
    }
}

#[test]
fn a_worker_that_waits_has_no_memory_for_a_run() {
    let metrics = Metrics::new("test", "0");
    let queue = Queue::new("test", metrics.queues());
    let controller = Controller::new(Arc::new(Large), queue, metrics.controllers());
    let worker = size_of_val(&controller.work());
    assert!(worker < LARGE, "{worker} bytes");
}

struct Bench {
    reconciler: Arc<Scripted>,
    queue: Queue<&'static str>,
    metrics: Metrics,
    controller: tokio::task::JoinHandle<()>,
}

fn bench(workers: usize) -> Bench {
    let metrics = Metrics::new("test", "0");
    let queue = Queue::new("test", metrics.queues());
    let reconciler = Arc::new(Scripted::default());
    let pause = Duration::from_millis(5);
    let controller = Controller::new(Arc::clone(&reconciler), queue.clone(), metrics.controllers())
        .workers(workers)
        .time_limit(Duration::from_secs(60))
        .backoff(Backoff { base: pause, factor: 1.0, cap: pause });
    Bench { reconciler, queue, metrics, controller: tokio::spawn(controller.run()) }
}

impl Bench {
    fn attempts(&self, key: &str) -> Vec<u32> {
        self.reconciler.attempts.lock().expect("not poisoned").get(key).cloned().unwrap_or_default()
    }

    /// Waits until the key ran that often.
    async fn ran(&self, key: &str, times: usize) {
        let waited = tokio::time::timeout(Duration::from_secs(20), async {
            while self.attempts(key).len() < times {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        assert!(waited.await.is_ok(), "{key} ran {:?}, not {times} times", self.attempts(key));
    }
}

#[tokio::test]
async fn each_ending_has_its_repetition() {
    let bench = bench(8);
    for key in ["panics", "transient", "permanent", "told when", "decided", "decided late", "periodic", "fine"] {
        bench.queue.add(key, Priority::Normal, "test");
    }
    for key in ["panics", "transient", "told when", "decided"] {
        bench.ran(key, 3).await;
        assert_eq!(bench.attempts(key)[..3], [1, 2, 3], "{key}");
    }
    bench.ran("periodic", 3).await;
    assert_eq!(bench.attempts("periodic")[..3], [1, 1, 1]);
    assert_eq!(bench.attempts("fine"), [1]);
    assert_eq!(bench.attempts("permanent"), [1]);
    assert_eq!(bench.attempts("decided late"), [1]);
    bench.queue.add("permanent", Priority::Normal, "changed");
    bench.ran("permanent", 2).await;
    assert_eq!(bench.attempts("permanent"), [1, 2]);
    let text = bench.metrics.encode().expect("text");
    for line in [
        r#"controller_runtime_terminal_reconcile_errors_total{controller="test"}"#,
        r#"konverge_reconcile_errors_total{controller="test",reason="Panicked"}"#,
        r#"controller_runtime_reconcile_panics_total{controller="test"}"#,
        r#"controller_runtime_max_concurrent_reconciles{controller="test"} 8"#,
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
}

#[test]
fn a_pause_is_stretched_by_a_tenth_at_most_and_by_ten_minutes_at_most() {
    let seconds = Duration::from_secs;
    for (pause, random, expected) in [
        (seconds(100), 0.0, seconds(100)),
        (seconds(100), 0.5, seconds(105)),
        (seconds(100), 1.0, seconds(110)),
        (seconds(100), 7.0, seconds(110)),
        (seconds(24 * 3600), 1.0, seconds(24 * 3600 + 600)),
        (Duration::ZERO, 1.0, Duration::ZERO),
        (Duration::MAX, 1.0, Duration::MAX),
    ] {
        assert_eq!(jittered(pause, random), expected, "{pause:?} {random}");
    }
}

/// Asks for a run of each object after one hour, at the same priority or at low priority, and notes when which one ran.
struct Polls(Mutex<Vec<(u32, Instant)>>);

impl Reconciler for Polls {
    type Key = u32;
    type Error = Failure;

    async fn reconcile(&self, request: Request<u32>) -> Result<Action, Failure> {
        self.0.lock().expect("not poisoned").push((request.key, Instant::now()));
        Ok(if request.key == 0 {
            Action::AfterAtSamePriority(Duration::from_secs(3600))
        } else {
            Action::After(Duration::from_secs(3600))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn objects_that_were_listed_together_do_not_come_back_together() {
    let metrics = Metrics::new("test", "0");
    let queue = Queue::new("polls", metrics.queues());
    let polls = Arc::new(Polls(Mutex::default()));
    let begun = Instant::now();
    (0..1000).for_each(|key| queue.add(key, Priority::Low, "listed"));
    tokio::spawn(Controller::new(Arc::clone(&polls), queue, metrics.controllers()).run());
    tokio::time::sleep(Duration::from_secs(4200)).await;
    let runs = polls.0.lock().expect("not poisoned").clone();
    let again: Vec<_> = runs.iter().skip(1000).map(|(_, at)| at.duration_since(begun)).collect();
    assert_eq!(again.len(), 1000);
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    assert!(again.iter().all(|at| (minutes(60)..=minutes(66) + Duration::from_secs(1)).contains(at)), "{again:?}");
    for minute in 60..66 {
        let share = again.iter().filter(|at| (minutes(minute)..minutes(minute + 1)).contains(*at)).count();
        assert!((100..250).contains(&share), "{share} in minute {minute}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_keeps_its_priority_and_a_poll_has_a_low_one() {
    let metrics = Metrics::new("test", "0");
    let queue = Queue::new("polls", metrics.queues());
    let polls = Arc::new(Polls(Mutex::default()));
    queue.add(0, Priority::High, "changed");
    queue.add(1, Priority::High, "changed");
    let controller = Controller::new(Arc::clone(&polls), queue.clone(), metrics.controllers()).workers(1);
    tokio::spawn(controller.run());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waiting = queue.snapshot();
    let of = |key| waiting.iter().find(|queued| queued.key == key).expect("it waits");
    assert_eq!((of(0).priority, of(1).priority), (Some(Priority::High), Some(Priority::Low)));
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_dropped_and_repeated() {
    let bench = bench(1);
    let queue = Queue::new("hanging", bench.metrics.queues());
    let controller = Controller::new(Arc::clone(&bench.reconciler), queue.clone(), bench.metrics.controllers())
        .workers(1)
        .time_limit(Duration::from_millis(5))
        .backoff(Backoff { base: Duration::from_millis(1), factor: 1.0, cap: Duration::from_millis(1) });
    tokio::spawn(controller.run());
    queue.add("hangs", Priority::High, "test");
    queue.add("fine", Priority::Low, "test");
    bench.ran("hangs", 2).await;
    bench.ran("fine", 1).await;
    assert_eq!(bench.attempts("hangs")[..2], [1, 2]);
    let text = bench.metrics.encode().expect("text");
    assert!(text.contains(r#"controller_runtime_reconcile_timeouts_total{controller="hanging"}"#), "{text}");
}

#[tokio::test]
async fn a_key_never_runs_twice_at_once_and_runs_again_when_added_meanwhile() {
    let bench = bench(4);
    bench.queue.add("gated", Priority::Normal, "test");
    bench.ran("gated", 1).await;
    bench.queue.add("gated", Priority::High, "test");
    bench.queue.add("gated", Priority::High, "test");
    bench.queue.add("fine", Priority::Low, "test");
    bench.ran("fine", 1).await;
    assert_eq!(bench.attempts("gated"), [1]);
    bench.reconciler.gate.notify_one();
    bench.ran("gated", 2).await;
    bench.reconciler.gate.notify_one();
    bench.queue.add("last", Priority::Low, "test");
    bench.ran("last", 1).await;
    assert_eq!(bench.attempts("gated"), [1, 1]);
}

#[tokio::test]
async fn closing_lets_the_run_in_flight_end_and_starts_no_other() {
    let bench = bench(1);
    bench.queue.add("gated", Priority::Normal, "test");
    bench.queue.add("fine", Priority::Normal, "test");
    bench.ran("gated", 1).await;
    bench.queue.close();
    bench.queue.add("late", Priority::High, "test");
    assert!(!bench.controller.is_finished());
    bench.reconciler.gate.notify_one();
    bench.controller.await.expect("no panic");
    assert_eq!(bench.reconciler.attempts.lock().expect("not poisoned").len(), 1);
}

#[tokio::test]
async fn many_workers_empty_a_burst_without_losing_a_key() {
    let metrics = Metrics::new("test", "0");
    let queue = Queue::new("burst", metrics.queues());
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let queue: Queue<u32> = queue.clone();
        workers.spawn(async move {
            let mut seen = Vec::new();
            while let Some(request) = queue.next().await {
                seen.push(request.key);
                tokio::task::yield_now().await;
                queue.complete(&request.key, Completion::Done);
                if seen.last() == Some(&u32::MAX) {
                    queue.close();
                }
            }
            seen
        });
    }
    for key in 0..1000 {
        queue.add(key, Priority::Normal, "test");
    }
    queue.add(u32::MAX, Priority::Normal, "the last");
    let mut seen: Vec<u32> = workers.join_all().await.concat();
    seen.sort_unstable();
    assert_eq!(seen, (0..1000).chain([u32::MAX]).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_watchdog_bites_while_a_run_is_in_flight_far_beyond_its_limit() {
    let metrics = Metrics::new("test", "0");
    let queue = Queue::new("test", metrics.queues());
    let controller = Controller::new(Arc::new(Scripted::default()), queue.clone(), metrics.controllers());
    let patient = controller.watchdog();
    let strict = controller.time_limit(Duration::from_millis(1)).watchdog();
    queue.add("stuck", Priority::Normal, "test");
    assert_eq!(strict(), Ok(()), "waiting is not being stuck");
    // As a worker does whose run never comes to an await.
    queue.next().await.expect("a request");
    tokio::time::timeout(Duration::from_secs(20), async {
        while strict().is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("a bite in time");
    assert_eq!(patient(), Ok(()));
    queue.complete(&"stuck", Completion::Done);
    assert_eq!(strict(), Ok(()));
}

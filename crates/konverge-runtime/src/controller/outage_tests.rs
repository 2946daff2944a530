//! Outages: how soon everything converges after them, and how many attempts they cost.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use super::*;
use crate::{metrics::Metrics, queue::Priority};

const ENDPOINT: &str = "API server";

#[derive(Debug, thiserror::Error)]
#[error("failed on purpose")]
struct Failure(ErrorClass);

impl Classify for Failure {
    fn class(&self) -> ErrorClass {
        self.0
    }

    fn reason(&self) -> &'static str {
        "OnPurpose"
    }
}

/// A world whose endpoint fails with a class until it is mended, and for some keys for ever.
struct World {
    failure: ErrorClass,
    mended_at: Instant,
    /// The keys from here on fail whether or not the endpoint answers.
    poisoned_from: u32,
    /// The desired state of each object, and the written one.
    objects: Mutex<BTreeMap<u32, (u32, u32)>>,
    /// When each attempt began.
    attempts: Mutex<Vec<Instant>>,
}

impl Reconciler for World {
    type Key = u32;
    type Error = Failure;

    async fn reconcile(&self, request: Request<u32>) -> Result<Action, Failure> {
        let key = request.key;
        self.attempts.lock().unwrap().push(Instant::now());
        let desired = self.objects().get(&key).map_or(0, |object| object.0);
        tokio::time::sleep(Duration::from_millis(2)).await;
        if Instant::now() < self.mended_at || key >= self.poisoned_from {
            return Err(Failure(self.failure));
        }
        if let Some(object) = self.objects().get_mut(&key) {
            object.1 = desired;
        }
        Ok(Action::Done)
    }
}

impl World {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<u32, (u32, u32)>> {
        self.objects.lock().unwrap()
    }

    fn is_converged(&self) -> bool {
        self.objects().range(..self.poisoned_from).all(|(_, (desired, written))| desired == written)
    }

    /// The attempts of the seconds that begin at `from`, up to `to`.
    fn per_second(&self, from: Instant, to: Instant) -> Vec<usize> {
        let attempts = self.attempts.lock().unwrap();
        let mut seconds = vec![0; usize::try_from((to - from).as_secs()).unwrap() + 1];
        for attempt in attempts.iter().filter(|attempt| (from..to).contains(attempt)) {
            seconds[usize::try_from((*attempt - from).as_secs()).unwrap()] += 1;
        }
        seconds
    }
}

struct Bench {
    world: Arc<World>,
    queue: Queue<u32>,
}

/// Begins an outage of this length for this many objects.
fn begin(failure: ErrorClass, outage: Duration, (objects, poisoned): (u32, u32)) -> Bench {
    let metrics = Metrics::new("test", "0");
    let queue = Queue::new("test", metrics.queues());
    let world = Arc::new(World {
        failure,
        mended_at: Instant::now() + outage,
        poisoned_from: objects,
        objects: Mutex::new((0..objects + poisoned).map(|key| (key, (0, 0))).collect()),
        attempts: Mutex::default(),
    });
    let controller = Controller::new(Arc::clone(&world), queue.clone(), metrics.controllers());
    tokio::spawn(controller.run());
    Bench { world, queue }
}

impl Bench {
    /// Every object changes.
    fn change_all(&self) {
        let keys: Vec<_> = self.world.objects().keys().copied().collect();
        for key in keys {
            if let Some(object) = self.world.objects().get_mut(&key) {
                object.0 += 1;
            }
            self.queue.add(key, Priority::Normal, "changed");
        }
    }

    /// Waits until all is converged; returns how long after the outage that was.
    async fn converged(&self) -> Duration {
        tokio::time::sleep_until(self.world.mended_at).await;
        while !self.world.is_converged() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.world.mended_at.elapsed()
    }
}

/// The API server refuses connections for 12 s, and in the first 0.4 s six objects change 17 times each. Backed off by attempts, they came
/// back after 30 to 300 s.
#[tokio::test(start_paused = true)]
async fn backoff_grows_with_time_and_not_with_events() {
    let bench = begin(ErrorClass::Transient, Duration::from_secs(12), (6, 0));
    for _ in 0..17 {
        bench.change_all();
        tokio::time::sleep(Duration::from_millis(24)).await;
    }
    let took = bench.converged().await;
    assert!(took < Duration::from_secs(70), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_of_an_endpoint_with_many_changes_is_over_within_five_seconds() {
    let bench = begin(ErrorClass::Unavailable(ENDPOINT), Duration::from_secs(12), (6, 0));
    let begun = Instant::now();
    for _ in 0..17 {
        bench.change_all();
        tokio::time::sleep(Duration::from_millis(24)).await;
    }
    let took = bench.converged().await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    let outage = bench.world.per_second(begun, bench.world.mended_at);
    assert!(outage.iter().sum::<usize>() <= 6 + 30, "each object once, and then one now and then: {outage:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_outage_of_thousands_is_over_within_five_seconds_and_one_per_thousand() {
    let outage = Duration::from_secs(600);
    let bench = begin(ErrorClass::Unavailable(ENDPOINT), outage, (3000, 0));
    let begun = Instant::now();
    for _ in 0..9 {
        bench.change_all();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let took = bench.converged().await;
    assert!(took < Duration::from_secs(8), "{took:?}");
    let mended_at = bench.world.mended_at;
    let during = bench.world.per_second(begun, mended_at);
    assert_eq!(during.iter().take(5).sum::<usize>() / 3000, 1, "each object finds out once: {during:?}");
    assert!(during.iter().skip(5).all(|attempts| *attempts <= 12), "{during:?}");
    let after = bench.world.per_second(mended_at, mended_at + Duration::from_secs(12));
    assert!(after.iter().all(|attempts| *attempts <= 1020), "{after:?}");
    assert!(after.iter().sum::<usize>() <= 3001, "each object once: {after:?}");
}

/// Objects whose requests fail as if the endpoint were away, such as those that a webhook answers 500 for.
#[tokio::test(start_paused = true)]
async fn objects_that_always_fail_neither_delay_the_others_nor_make_a_hot_loop() {
    let bench = begin(ErrorClass::Unavailable(ENDPOINT), Duration::ZERO, (1000, 100));
    let begun = Instant::now();
    bench.change_all();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(bench.world.is_converged(), "no object waits that has not failed itself");
    tokio::time::sleep(Duration::from_secs(600)).await;
    let poisoned = bench.world.per_second(begun + Duration::from_secs(5), Instant::now());
    assert!(poisoned.iter().all(|attempts| *attempts <= 12), "{poisoned:?}");
    assert!(poisoned.iter().sum::<usize>() >= 100, "each is tried: {poisoned:?}");
    // A change of one of the others is not delayed.
    bench.world.objects().insert(1, (7, 0));
    bench.queue.add(1, Priority::Normal, "changed");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(bench.world.is_converged());
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_over_within_five_seconds_although_some_objects_always_fail() {
    let bench = begin(ErrorClass::Unavailable(ENDPOINT), Duration::from_secs(180), (300, 100));
    bench.change_all();
    let took = bench.converged().await;
    assert!(took < Duration::from_secs(6), "{took:?}");
}

/// A policy denies the write. Nothing tells when it goes.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_tried_again_after_one_to_two_minutes_at_the_latest() {
    let bench = begin(ErrorClass::Refused, Duration::from_secs(10_800), (1, 0));
    bench.change_all();
    let took = bench.converged().await;
    assert!(took <= Duration::from_secs(120), "{took:?}");
    let attempts = bench.world.attempts.lock().unwrap().clone();
    let pauses: Vec<_> = attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[0] <= Duration::from_millis(1010), "soon at first: {pauses:?}");
    let late = &pauses[10..];
    assert!(late.iter().all(|pause| (60..=121).contains(&pause.as_secs())), "{pauses:?}");
    assert!(late.iter().any(|pause| pause.as_millis() != late[0].as_millis()), "with jitter: {pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_when_to_come_back_is_left_alone_until_then() {
    let bench = begin(ErrorClass::After(Duration::from_secs(60)), Duration::from_secs(60), (1, 0));
    bench.change_all();
    let took = bench.converged().await;
    assert!(took <= Duration::from_secs(7), "{took:?}");
    assert_eq!(bench.world.attempts.lock().unwrap().len(), 2);
}

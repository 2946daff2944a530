//! The queue between real threads: whatever their order, every request is followed by a run, and a key has one worker at a time.
//!
//! Between two bursts of requests everything comes to rest. So a wake-up that is lost is not made good by the next one, and is found.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use prometheus_client::registry::Registry;
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::*;
use crate::{metrics::registry::BeforeScrape, schedule::yield_or_sleep};

const KEYS: usize = 4;
const PRODUCERS: u64 = 2;
const WORKERS: u64 = 3;
const BURSTS: usize = 300;
/// The time for a burst to come to rest; it takes less than a thousandth of that.
const LIMIT: Duration = Duration::from_secs(10);

/// The requests for a key, and those that its last run knew of.
#[derive(Default)]
struct Key {
    requests: AtomicU64,
    known: AtomicU64,
    is_worked_on: AtomicBool,
}

/// Ends when the queue is closed. A part of the calls for work is given up, as when a worker is stopped.
async fn work(queue: Queue<usize>, keys: Arc<[Key; KEYS]>, has_timers: bool, mut random: SmallRng) {
    loop {
        let gives_up = random.random_range(0..4) == 0;
        let next = if gives_up {
            tokio::select! {
                biased;
                next = queue.next() => next,
                () = tokio::task::yield_now() => continue,
            }
        } else {
            queue.next().await
        };
        let Some(request) = next else { return };
        let key = &keys[request.key];
        assert!(!key.is_worked_on.swap(true, Ordering::SeqCst), "two workers have one key");
        let known = key.requests.load(Ordering::SeqCst);
        yield_or_sleep(&mut random);
        key.known.store(known, Ordering::SeqCst);
        key.is_worked_on.store(false, Ordering::SeqCst);
        let completion = match random.random_range(0..4) {
            0 if has_timers => Completion::Retry(Duration::from_micros(random.random_range(0..300))),
            1 if has_timers => Completion::DoneUntil(Duration::from_secs(3600)),
            _ => Completion::Done,
        };
        queue.complete(&request.key, completion);
    }
}

/// Requests runs in bursts, and waits after each until all is at rest. Returns whether it came to rest.
fn request_runs(queue: &Queue<usize>, keys: &[Key; KEYS], has_timers: bool, mut random: SmallRng) -> bool {
    for _ in 0..BURSTS {
        for _ in 0..random.random_range(1..4) {
            let key = random.random_range(0..KEYS);
            keys[key].requests.fetch_add(1, Ordering::SeqCst);
            let delay = if has_timers { random.random_range(0..300) } else { 0 };
            queue.add_after(key, Duration::from_micros(delay), Priority::Normal, "test");
            yield_or_sleep(&mut random);
        }
        let begun = std::time::Instant::now();
        while keys.iter().any(|key| key.known.load(Ordering::SeqCst) != key.requests.load(Ordering::SeqCst)) {
            if begun.elapsed() > LIMIT {
                return false;
            }
            thread::yield_now();
        }
    }
    true
}

fn run(seed: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_time().build().unwrap();
    let queue = Queue::new("threads", &QueueMetrics::new(BeforeScrape::default(), &mut Registry::default()));
    let keys: Arc<[Key; KEYS]> = Arc::default();
    let has_timers = seed % 2 == 1;
    let random = |number: u64| SmallRng::seed_from_u64(seed * 100 + number);
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| runtime.spawn(work(queue.clone(), Arc::clone(&keys), has_timers, random(number))))
        .collect();
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|number| {
            let (queue, keys, random) = (queue.clone(), Arc::clone(&keys), random(50 + number));
            thread::spawn(move || request_runs(&queue, &keys, has_timers, random))
        })
        .collect();
    let are_at_rest = producers.into_iter().all(|producer| producer.join().unwrap());
    assert!(are_at_rest, "seed {seed}: a request was lost; {:#?}", queue.snapshot());
    queue.close();
    runtime.block_on(async {
        for worker in workers {
            worker.await.unwrap();
        }
    });
}

#[test]
fn row_30_no_wish_is_lost_between_threads() {
    (0..6).for_each(run);
}

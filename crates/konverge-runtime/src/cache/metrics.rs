//! The metrics of caches.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tokio::time::Instant;

use crate::{metrics::registry::BeforeScrape, watch::Observed};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    resource: String,
}

/// The series of all caches of a process.
#[derive(Clone)]
pub struct CacheMetrics {
    before_scrape: BeforeScrape,
    objects: Family<Labels, Gauge>,
    undecodable: Family<Labels, Gauge>,
    events: Family<Labels, Counter>,
    age: Family<Labels, Gauge<f64, AtomicU64>>,
}

/// Counts the events of one cache.
#[derive(Clone)]
pub(super) struct Events {
    count: Counter,
    started: Instant,
    /// Milliseconds from `started` to the last event.
    last: Arc<AtomicU64>,
}

impl Events {
    pub(super) fn observed<T>(&self, observed: &Observed<T>) {
        if matches!(observed, Observed::Bookmark(_) | Observed::Opened) {
            return;
        }
        self.count.inc();
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
    }
}

impl CacheMetrics {
    /// Registers the series; once per process.
    pub(crate) fn new(before_scrape: BeforeScrape, registry: &mut Registry) -> Self {
        let metrics = Self {
            before_scrape,
            objects: Family::default(),
            undecodable: Family::default(),
            events: Family::default(),
            age: Family::default(),
        };
        registry.register("konverge_cache_objects", "Objects in the cache", metrics.objects.clone());
        registry.register(
            "konverge_cache_undecodable_objects",
            "Objects that exist but are not what their kind says",
            metrics.undecodable.clone(),
        );
        registry.register("konverge_cache_events", "Events that the watches brought", metrics.events.clone());
        registry.register(
            "konverge_cache_last_event_age_seconds",
            "Time since the watches of this resource last brought an event",
            metrics.age.clone(),
        );
        metrics
    }

    /// Measures a cache of `resource` before each scrape: how many objects it has, and how many could not be understood. Where a
    /// resource has several caches, their figures are those of the last one made.
    pub(super) fn measure(&self, resource: &str, count: impl Fn() -> (usize, usize) + Send + Sync + 'static) {
        let labels = labels(resource);
        let (objects, undecodable) = (self.objects.clone(), self.undecodable.clone());
        self.before_scrape.add(move || {
            let (known, unknown) = count();
            objects.get_or_create(&labels).set(i64::try_from(known).unwrap_or(i64::MAX));
            undecodable.get_or_create(&labels).set(i64::try_from(unknown).unwrap_or(i64::MAX));
            true
        });
    }

    /// Counts the events of a cache of `resource`.
    pub(super) fn events(&self, resource: &str) -> Events {
        let labels = labels(resource);
        let events =
            Events { count: self.events.get_or_create(&labels).clone(), started: Instant::now(), last: Arc::default() };
        let (seen, age) = (events.clone(), self.age.clone());
        self.before_scrape.add(move || {
            let age_now = seen.started.elapsed().as_secs_f64()
                - std::time::Duration::from_millis(seen.last.load(Ordering::Relaxed)).as_secs_f64();
            age.get_or_create(&labels).set(age_now.max(0.0));
            true
        });
        events
    }
}

fn labels(resource: &str) -> Labels {
    Labels { resource: resource.to_owned() }
}

//! The metrics of a process: one registry, some figures that are measured when somebody asks, and the names that dashboards
//! made for controller-runtime know.

mod client;
pub(crate) mod controller;

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

pub use client::{ClientMetrics, ClientMetricsService};
pub use controller::ControllerMetrics;

use crate::{cache::CacheMetrics, lease::LeaseMetrics, queue::QueueMetrics};

/// Where all series of a process are. Clones are handles to the same ones.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    before_scrape: BeforeScrape,
    queues: QueueMetrics,
    controllers: ControllerMetrics,
    client: ClientMetrics,
    leases: LeaseMetrics,
    caches: CacheMetrics,
}

/// What brings gauges up to date before they are read. Each says with `false` that what it measures is gone.
#[derive(Clone, Default)]
pub(crate) struct BeforeScrape(Arc<Mutex<Vec<Measure>>>);

type Measure = Box<dyn Fn() -> bool + Send + Sync>;

impl BeforeScrape {
    pub(crate) fn add(&self, measure: impl Fn() -> bool + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(measure));
    }

    fn run(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|measure| measure());
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    program: String,
    version: String,
}

impl Metrics {
    /// The series of every program: queues, controllers, API client, `konverge_build_info` for `program` and `version`, and the
    /// memory of the process.
    pub fn new(program: impl Into<String>, version: impl Into<String>) -> Self {
        let mut registry = Registry::default();
        let before_scrape = BeforeScrape::default();
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels { program: program.into(), version: version.into() }).set(1);
        registry.register("konverge_build_info", "Which program and version this is; always 1", build);
        let memory: Gauge = Gauge::default();
        registry.register("process_resident_memory_bytes", "Memory of the process that is in RAM", memory.clone());
        before_scrape.add(move || {
            memory.set(resident_memory().unwrap_or_default());
            true
        });
        let queues = QueueMetrics::new(before_scrape.clone(), &mut registry);
        let controllers = ControllerMetrics::new(&mut registry);
        let client = ClientMetrics::new(&mut registry);
        let leases = LeaseMetrics::new(&mut registry);
        let caches = CacheMetrics::new(before_scrape.clone(), &mut registry);
        Self { registry: Arc::new(Mutex::new(registry)), before_scrape, queues, controllers, client, leases, caches }
    }

    /// Adds series of the program's own.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `measure` before each read of the metrics, to bring gauges up to date. It must not wait.
    pub fn before_scrape(&self, measure: impl Fn() + Send + Sync + 'static) {
        self.before_scrape.add(move || {
            measure();
            true
        });
    }

    /// For [`Queue::new`](crate::queue::Queue::new).
    pub fn queues(&self) -> &QueueMetrics {
        &self.queues
    }

    /// For [`Controller::new`](crate::controller::Controller::new).
    pub fn controllers(&self) -> &ControllerMetrics {
        &self.controllers
    }

    /// For [`client::build`](crate::client::build).
    pub fn client(&self) -> &ClientMetrics {
        &self.client
    }

    /// For [`Elector::metrics`](crate::lease::Elector::metrics).
    pub fn leases(&self) -> &LeaseMetrics {
        &self.leases
    }

    /// For [`Caches::new`](crate::cache::Caches::new).
    pub fn caches(&self) -> &CacheMetrics {
        &self.caches
    }

    /// All series as text in the `OpenMetrics` format.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        self.before_scrape.run();
        let mut answer = String::new();
        text::encode(&mut answer, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(answer)
    }
}

/// From one millisecond to about a minute.
pub(crate) fn duration_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

/// Linux tells it in kibibytes; other systems do not have this file.
fn resident_memory() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<i64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_known_names() {
        let metrics = Metrics::new("test", "1.2.3");
        let queue = crate::queue::Queue::<u8>::new("pull", metrics.queues());
        queue.add(1, crate::queue::Priority::High, "test");
        let text = metrics.encode().expect("text");
        for line in [
            r#"konverge_build_info{program="test",version="1.2.3"} 1"#,
            r#"workqueue_depth{name="pull",controller="pull",priority="high"} 1"#,
            r#"workqueue_adds_total{name="pull",controller="pull"} 1"#,
            "# EOF",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
        assert!(resident_memory().is_some_and(|bytes| bytes > 0));
    }
}

//! The registration of metrics: each module adds its own series to the registry.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::{
    metrics::histogram::{Histogram, exponential_buckets},
    registry::{Metric, Registry},
};

/// Makes metrics that are registered from the beginning.
pub trait RegistryExt {
    /// Makes a metric and registers it.
    fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.add_metric(name, help, M::default())
    }

    /// Registers a metric. Returns a handle to it.
    fn add_metric<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M;
}

impl RegistryExt for Registry {
    fn add_metric<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.register(name, help, metric.clone());
        metric
    }
}

/// Functions that update gauges before they are read. Each returns `false` once the measured thing is gone.
#[derive(Clone, Default)]
pub(crate) struct BeforeScrape(Arc<Mutex<Vec<Measure>>>);

type Measure = Box<dyn Fn() -> bool + Send + Sync>;

impl BeforeScrape {
    pub(crate) fn add(&self, measure: impl Fn() -> bool + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(measure));
    }

    pub(super) fn run(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|measure| measure());
    }
}

/// Returns a histogram with buckets from one millisecond to about a minute.
pub(crate) fn duration_buckets() -> Histogram {
    Histogram::new(duration_bounds())
}

pub(crate) fn duration_bounds() -> impl Iterator<Item = f64> {
    exponential_buckets(0.001, 2.0, 17)
}

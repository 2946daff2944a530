//! The metrics of a process: one registry, some figures that are measured when somebody asks, and the names that dashboards
//! made for controller-runtime know.

mod bounded;
pub(crate) mod client;
pub(crate) mod controller;
mod process;
pub(crate) mod registry;
mod tokio_runtime;

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

pub use bounded::{BoundedFamily, MOST_SERIES, NameLabels};
pub use client::{ClientMetrics, ClientMetricsService};
pub use controller::ControllerMetrics;
pub use registry::RegistryExt;

use self::registry::BeforeScrape;
use crate::{cache::metrics::CacheMetrics, checks::Checks, lease::metrics::LeaseMetrics, queue::metrics::QueueMetrics};

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
    checks: Family<CheckLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    program: String,
    version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckLabels {
    check: String,
    kind: &'static str,
}

impl Metrics {
    /// The series of every program: queues, controllers, API client, checks, `konverge_build_info` for `program` and `version`, and
    /// the process.
    pub fn new(program: impl Into<String>, version: impl Into<String>) -> Self {
        let mut registry = Registry::default();
        let before_scrape = BeforeScrape::default();
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels { program: program.into(), version: version.into() }).set(1);
        registry.register("konverge_build_info", "Which program and version this is; always 1", build);
        process::register(&before_scrape, &mut registry);
        tokio_runtime::register(&before_scrape, &mut registry);
        let checks = Family::default();
        registry.register(
            "konverge_check_status",
            "Whether a check passes: 1 for passing, 0 for failing",
            checks.clone(),
        );
        let queues = QueueMetrics::new(before_scrape.clone(), &mut registry);
        let controllers = ControllerMetrics::new(&mut registry);
        let client = ClientMetrics::new(&mut registry);
        let leases = LeaseMetrics::new(&mut registry);
        let caches = CacheMetrics::new(before_scrape.clone(), &mut registry);
        Self {
            registry: Arc::new(Mutex::new(registry)),
            before_scrape,
            queues,
            controllers,
            client,
            leases,
            caches,
            checks,
        }
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

    /// Tells before each scrape how these checks stand.
    pub(crate) fn follow(&self, checks: &Checks) {
        let (checks, series) = (checks.clone(), self.checks.clone());
        self.before_scrape(move || {
            for (check, kind, passes) in checks.states() {
                series.get_or_create(&CheckLabels { check, kind }).set(passes.into());
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a series without labels.
    pub(super) fn value(text: &str, series: &str) -> f64 {
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{series} is not in:\n{text}"))
    }

    /// The names that controller-runtime made known, and those of the process; as Prometheus sees them.
    const KNOWN: &[&str] = &[
        "controller_runtime_active_workers",
        "controller_runtime_max_concurrent_reconciles",
        "controller_runtime_reconcile_errors_total",
        "controller_runtime_reconcile_panics_total",
        "controller_runtime_reconcile_time_seconds_bucket",
        "controller_runtime_reconcile_timeouts_total",
        "controller_runtime_reconcile_total",
        "controller_runtime_terminal_reconcile_errors_total",
        "leader_election_master_status",
        "leader_election_slowpath_total",
        "process_cpu_seconds_total",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_threads",
        "process_virtual_memory_bytes",
        "rest_client_request_duration_seconds_bucket",
        "rest_client_requests_total",
        "tokio_alive_tasks",
        "tokio_workers",
        "workqueue_adds_total",
        "workqueue_depth",
        "workqueue_longest_running_processor_seconds",
        "workqueue_queue_duration_seconds_bucket",
        "workqueue_retries_total",
        "workqueue_unfinished_work_seconds",
        "workqueue_work_duration_seconds_bucket",
    ];

    /// Whether the text has a sample of this series. A name is followed by its labels or its value.
    fn has(text: &str, series: &str) -> bool {
        text.lines().any(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(['{', ' '])))
    }

    #[tokio::test(start_paused = true)]
    async fn row_31_the_text_has_the_known_names() {
        use std::time::Duration;

        use controller::RunResult;

        use crate::queue::Completion;

        let metrics = Metrics::new("test", "1.2.3");
        let queue = crate::queue::Queue::<&str>::new("pull", metrics.queues());
        // One has been worked on and is to be tried again, and one waits.
        queue.add("the-first-object", crate::queue::Priority::High, "test");
        let request = queue.next().await.unwrap();
        queue.complete(&request.key, Completion::Retry(Duration::from_secs(3600)));
        queue.add("the-second-object", crate::queue::Priority::High, "test");
        let runs = metrics.controllers();
        runs.configured("pull", 1);
        for result in [
            RunResult::Success,
            RunResult::Error { reason: "NeverWorks", permanent: true },
            RunResult::TimedOut,
            RunResult::Panicked,
        ] {
            runs.started("pull");
            runs.finished("pull", result, Duration::from_secs(1), None);
        }
        metrics.leases().set_leader("pull-leader", true);
        metrics.leases().slow_path("pull-leader");
        let server = tower::service_fn(async |_: http::Request<()>| Ok::<_, tower::BoxError>(http::Response::new(())));
        let request = http::Request::get("http://here/api/v1/namespaces/there/pods/that").body(()).unwrap();
        tower::ServiceExt::oneshot(tower::Layer::layer(metrics.client(), server), request).await.unwrap();

        let text = metrics.encode().expect("text");
        for line in [
            r#"konverge_build_info{program="test",version="1.2.3"} 1"#,
            r#"workqueue_depth{name="pull",controller="pull",priority="high"} 1"#,
            r#"workqueue_adds_total{name="pull",controller="pull"} 2"#,
            r#"controller_runtime_reconcile_total{controller="pull",result="error"} 3"#,
            "# EOF",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
        let missing: Vec<_> = KNOWN.iter().filter(|series| !has(&text, series)).collect();
        assert!(missing.is_empty(), "{missing:?} are not in:\n{text}");
        for object in ["the-first-object", "the-second-object", "there", "/pods/"] {
            assert!(!text.contains(object), "an object is named in a label:\n{text}");
        }
    }
}

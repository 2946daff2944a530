//! The tokio runtime of the process: the figures that need no unstable build.

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use tokio::runtime::Handle;

use super::registry::BeforeScrape;

/// Registers the series and brings them up to date before each scrape. Outside of a runtime they keep their values.
pub(super) fn register(before_scrape: &BeforeScrape, registry: &mut Registry) {
    let (workers, tasks, waiting) = (Gauge::<i64>::default(), Gauge::<i64>::default(), Gauge::<i64>::default());
    let busy = Counter::<f64, AtomicU64>::default();
    registry.register("tokio_workers", "Threads of the runtime", workers.clone());
    registry.register("tokio_alive_tasks", "Tasks that have not ended", tasks.clone());
    registry.register(
        "tokio_global_queue_depth",
        "Tasks in the queue that all threads share; a growing queue means that tasks block threads",
        waiting.clone(),
    );
    registry.register("tokio_busy_seconds", "Time that the threads spent running tasks", busy.clone());
    before_scrape.add(move || {
        if let Ok(handle) = Handle::try_current() {
            let metrics = handle.metrics();
            workers.set(gauge(metrics.num_workers()));
            tasks.set(gauge(metrics.num_alive_tasks()));
            waiting.set(gauge(metrics.global_queue_depth()));
            let total: Duration =
                (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker)).sum();
            busy.inc_by((total.as_secs_f64() - busy.get()).max(0.0));
        }
        true
    });
}

fn gauge(figure: usize) -> i64 {
    i64::try_from(figure).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use crate::metrics::{Metrics, tests::value};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_figures_are_those_of_this_runtime() {
        let metrics = Metrics::new("test", "1.2.3");
        let read = |series: &str| value(&metrics.encode().unwrap(), series);
        let before = read("tokio_alive_tasks");
        let tasks: Vec<_> = (0..3).map(|_| tokio::spawn(std::future::pending::<()>())).collect();
        assert!((read("tokio_workers") - 2.0).abs() < f64::EPSILON);
        assert!(read("tokio_alive_tasks") >= before + 3.0);
        let busy = read("tokio_busy_seconds_total");
        tokio::spawn(async { std::thread::sleep(std::time::Duration::from_millis(20)) }).await.unwrap();
        // A worker adds to its figure when it has nothing left to do.
        while read("tokio_busy_seconds_total") < busy + 0.02 {
            tokio::task::yield_now().await;
        }
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[test]
    fn outside_of_a_runtime_the_text_can_be_read_all_the_same() {
        let text = Metrics::new("test", "1.2.3").encode().unwrap();
        assert!(value(&text, "tokio_workers").abs() < f64::EPSILON);
    }
}

//! Collectors that misbehave. That one which behaves gets the right spans is tested with `examples/multicontroller`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod exemplars;

use std::{
    io::Write,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, http::StatusCode, routing::post};
use konverge_otlp::Traces;
use tokio::net::TcpListener;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::{Layer, filter::LevelFilter, fmt, layer::SubscriberExt};

/// More spans than wait for a collector.
const MANY: usize = 5000;

/// The captured log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn count(&self, text: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock().unwrap()).matches(text).count()
    }

    async fn says(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.count(text) == 0 {
            assert!(Instant::now() < deadline, "it never said {text:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Sends the spans of this thread to `endpoint`, which is the only one of the test's runtime.
fn begin(endpoint: &str) -> (Traces, Log, DefaultGuard) {
    let (traces, log) = (Traces::new(endpoint, "test", "1").unwrap(), Log::default());
    let mut layers = traces.layers();
    let writer = log.clone();
    let lines = fmt::layer().with_ansi(false).with_writer(move || writer.clone());
    layers.push(lines.with_filter(LevelFilter::INFO).boxed());
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layers));
    (traces, log, guard)
}

fn work(runs: usize) -> Duration {
    let began = Instant::now();
    for number in 0..runs {
        tracing::info_span!("reconcile", number).in_scope(|| ());
    }
    began.elapsed()
}

const AWAY: &str = "the collector takes no spans";

#[tokio::test]
async fn row_36_a_collector_that_is_away_or_silent_delays_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = [silent.local_addr().unwrap(), away.local_addr().unwrap()];
    drop(away);
    for address in addresses {
        let (traces, _log, _guard) = begin(&format!("http://{address}"));
        let took = work(MANY);
        assert!(took < Duration::from_secs(5), "spans took {took:?}");
        let began = Instant::now();
        traces.finish(Duration::from_secs(1)).await;
        let took = began.elapsed();
        assert!(took < Duration::from_secs(5), "the end took {took:?}");
    }
}

#[tokio::test]
async fn a_collector_that_refuses_is_told_of_once_and_again_when_it_is_back() {
    let (status, requests) = (Arc::new(AtomicU16::new(503)), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (answer, seen) = (Arc::clone(&status), Arc::clone(&requests));
    let take = async move || {
        seen.fetch_add(1, Ordering::SeqCst);
        StatusCode::from_u16(answer.load(Ordering::SeqCst)).unwrap()
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/v1/traces", post(take))).await.unwrap() });

    let (traces, log, _guard) = begin(&endpoint);
    // As many as are sent at once, several times.
    work(1600);
    log.says(AWAY).await;
    let begun = std::time::Instant::now();
    while requests.load(Ordering::SeqCst) < 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is asked only once");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    status.store(200, Ordering::SeqCst);
    work(1600);
    log.says("takes spans again").await;
    traces.finish(Duration::from_secs(5)).await;
    assert_eq!((log.count(AWAY), log.count("it answers 503")), (1, 1));
}

#[tokio::test]
async fn an_endpoint_that_is_none_is_refused_at_once_without_its_password() {
    for endpoint in ["collector:4317", "http://me:hunter2@collector:4318"] {
        let error = Traces::new(endpoint, "test", "1").err().unwrap().to_string();
        assert!(error.contains("give one such as http://") && !error.contains("hunter2"), "{error}");
    }
}

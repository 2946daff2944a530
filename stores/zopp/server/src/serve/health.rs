//! `/healthz`, `/readyz` and `/metrics` in plain HTTP, for probes and Prometheus.
//!
//! The answer is `ok`, or each check in a line with `?verbose` and when one fails, as components of Kubernetes answer.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{RawQuery, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, sync::Mutex, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{RunError, probe_connections::Bounded};
use crate::{metrics::Metrics, store::Store};

/// How long a write that succeeded stands for those of later probes. Each is a commit that waits for the disk.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// Of `OpenMetrics`, the text format that [`Metrics::text`] writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The state that probes ask about.
#[derive(Clone)]
pub(super) struct Probes {
    store: Store,
    stop: CancellationToken,
    metrics: Metrics,
    /// One probe asks the database at a time, and its answer is that of all who waited for it: probes without end cost one query.
    database_status: Arc<Mutex<DatabaseStatus>>,
}

/// The last answers of the database.
#[derive(Debug, Default)]
struct DatabaseStatus {
    /// When it was asked, and how it was.
    last: Option<(Instant, Outcome)>,
    /// When a write succeeded.
    written: Option<Instant>,
}

/// Why a check failed, if it did.
type Outcome = Result<(), &'static str>;

/// A named check and why it failed.
type Check = (&'static str, Outcome);

/// Answers probes until the calls are `finished`; from the probes' `stop` on, that the server is not ready.
pub(super) async fn serve(listener: TcpListener, probes: Probes, finished: CancellationToken) -> Result<(), RunError> {
    let of_connections = probes.metrics.clone();
    let router = Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(probes);
    let listener = Bounded::new(listener, of_connections);
    // Not gracefully: a probe's idle connection must not hold the server up.
    tokio::select! {
        result = async { axum::serve(listener, router).await } => result.map_err(RunError::Health),
        () = finished.cancelled() => Ok(()),
    }
}

async fn alive(RawQuery(query): RawQuery) -> (StatusCode, String) {
    report("healthz", &[("ping", Ok(()))], is_verbose(query.as_deref()))
}

async fn ready(State(probes): State<Probes>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let stopping = if probes.stop.is_cancelled() { Err("stopping") } else { Ok(()) };
    // A server that stops is not ready whatever its database says.
    let database = if stopping.is_ok() { probes.examine().await } else { Ok(()) };
    report("readyz", &[("database", database), ("shutdown", stopping)], is_verbose(query.as_deref()))
}

async fn metrics(State(probes): State<Probes>) -> Response {
    match probes.metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Is `verbose` one of the parameters, with or without a value?
fn is_verbose(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|part| part.split('=').next() == Some("verbose"))
}

fn report(name: &str, checks: &[Check], verbose: bool) -> (StatusCode, String) {
    let passed = checks.iter().all(|(_, outcome)| outcome.is_ok());
    if passed && !verbose {
        return (StatusCode::OK, "ok".to_owned());
    }
    let lines = checks.iter().map(|(check, outcome)| match outcome {
        Ok(()) => format!("[+]{check} ok\n"),
        Err(why) => format!("[-]{check} failed: {why}\n"),
    });
    let (status, word) = if passed { (StatusCode::OK, "passed") } else { (StatusCode::SERVICE_UNAVAILABLE, "failed") };
    (status, lines.collect::<String>() + &format!("{name} check {word}\n"))
}

impl Probes {
    /// Of that store, until `stop`.
    pub(super) fn new(store: Store, stop: CancellationToken, metrics: Metrics) -> Self {
        Self { store, stop, metrics, database_status: Arc::default() }
    }

    /// Can the database be read and written, by a question that was put after this was called? A write may be some seconds older.
    async fn examine(&self) -> Outcome {
        let came = Instant::now();
        let mut status = self.database_status.lock().await;
        if let Some((at, outcome)) = status.last
            && at >= came
        {
            return outcome;
        }
        let at = Instant::now();
        let outcome = self.ask(&mut status.written).await;
        status.last = Some((at, outcome));
        outcome
    }

    async fn ask(&self, written: &mut Option<Instant>) -> Outcome {
        if let Err(error) = self.store.ping().await {
            tracing::error!(error = &error as &dyn std::error::Error, "the database does not answer");
            return Err("the database does not answer");
        }
        if written.is_some_and(|at| at.elapsed() < WRITE_EVERY) {
            return Ok(());
        }
        if let Err(error) = self.store.try_write().await {
            tracing::error!(error = &error as &dyn std::error::Error, "the database cannot be written");
            *written = None;
            return Err("the database cannot be written");
        }
        *written = Some(Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_listed_on_request_and_when_one_fails() {
        let good: [Check; 2] = [("database", Ok(())), ("shutdown", Ok(()))];
        assert_eq!(report("readyz", &good, false), (StatusCode::OK, "ok".to_owned()));
        let listed = "[+]database ok\n[+]shutdown ok\nreadyz check passed\n".to_owned();
        assert_eq!(report("readyz", &good, true), (StatusCode::OK, listed));
        let bad: [Check; 2] = [("database", Err("away")), ("shutdown", Ok(()))];
        let listed = "[-]database failed: away\n[+]shutdown ok\nreadyz check failed\n".to_owned();
        assert_eq!(report("readyz", &bad, false), (StatusCode::SERVICE_UNAVAILABLE, listed));
    }

    #[test]
    fn verbose_needs_no_value() {
        for (query, expected) in [
            (None, false),
            (Some(""), false),
            (Some("verbose"), true),
            (Some("a=b&verbose=1"), true),
            (Some("verbosely"), false),
        ] {
            assert_eq!(is_verbose(query), expected, "{query:?}");
        }
    }
}

//! The server's metrics, for `/metrics`. No label names a user, a workspace or an address, and each has few values.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::Registry,
};
use tokio::time::Instant;
use tonic::Code;
use tower::{Layer, Service};

use crate::status::REACHED_LIMIT;

/// Under which calls are counted that the server does not have.
const OTHER: &str = "other";
/// A call that ends well tells so behind its answer, and any other one before it.
const STATUS: &str = "grpc-status";
/// From a millisecond to 16 seconds.
const BUCKETS: u16 = 15;

/// Results of reading changed certificate files.
const USABLE: &str = "success";
const UNUSABLE: &str = "error";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    method: String,
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Method {
    method: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Limit {
    limit: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Loaded {
    result: &'static str,
}

/// The server's metrics. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    requests: Family<Answered, Counter>,
    seconds: Family<Method, Histogram, fn() -> Histogram>,
    connections: Gauge,
    refused: Family<Limit, Counter>,
    limits_reached: Family<Limit, Counter>,
    handshakes: Counter,
    answers_not_taken: Counter,
    audit_rows_lost: Counter,
    watch_rechecks: Counter,
    reloads: Family<Loaded, Counter>,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Reads the registry of the server's metrics, in which each family has a value, so that its type is known: for pages and alerts that are made of it.
pub fn described<T>(read: impl FnOnce(&Registry) -> T) -> T {
    let metrics = Metrics::new();
    metrics.answered(OTHER, Code::Ok, Instant::now());
    metrics.connection_refused(OTHER);
    metrics.limit_reached(OTHER);
    read(&metrics.registry)
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, BUCKETS))
}

impl Metrics {
    /// Nothing is counted yet.
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("zopp_server");
        let requests = Family::<Answered, Counter>::default();
        let seconds = Family::new_with_constructor(seconds as fn() -> Histogram);
        let connections = Gauge::default();
        let (handshakes, watch_rechecks) = (Counter::default(), Counter::default());
        let (answers_not_taken, audit_rows_lost) = (Counter::default(), Counter::default());
        let (refused, limits_reached) = (Family::<Limit, Counter>::default(), Family::<Limit, Counter>::default());
        let reloads = Family::<Loaded, Counter>::default();
        registry.register(
            "requests",
            "Calls by method and gRPC code; an opened stream counts when it opens",
            requests.clone(),
        );
        registry.register("request_seconds", "Time until a call is answered or its stream opened", seconds.clone());
        registry.register("connections", "Open connections of clients", connections.clone());
        registry.register(
            "connections_refused",
            "Connections that were closed at once because of a limit",
            refused.clone(),
        );
        registry.register(
            "limits_reached",
            "Calls that were refused because of a limit, by the flag that sets it",
            limits_reached.clone(),
        );
        registry.register("handshakes_failed", "TLS handshakes that did not succeed", handshakes.clone());
        registry.register(
            "answers_not_taken",
            "Answers that a client did not take in time, and whose connection was closed for that",
            answers_not_taken.clone(),
        );
        registry.register(
            "audit_rows_lost",
            "Audit rows of reads and refusals that could not be written; with --audit-required, such reads failed",
            audit_rows_lost.clone(),
        );
        registry.register(
            "watch_rechecks",
            "Questions to the database whether watches may go on; one serves all of a principal on an environment",
            watch_rechecks.clone(),
        );
        registry.register(
            "certificate_reloads",
            "Changed certificate files, by whether they could be used",
            reloads.clone(),
        );
        // An increase is seen only of a series that was there before.
        for result in [USABLE, UNUSABLE] {
            reloads.get_or_create(&Loaded { result }).inc_by(0);
        }
        registry.register("build", "The version", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        Self {
            registry: Arc::new(registry),
            requests,
            seconds,
            connections,
            refused,
            limits_reached,
            handshakes,
            answers_not_taken,
            audit_rows_lost,
            watch_rechecks,
            reloads,
        }
    }

    /// All of them, in the text format of `OpenMetrics`.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// One more connection.
    pub(crate) fn connection(&self) -> Counted {
        self.connections.inc();
        Counted(self.connections.clone())
    }

    /// A connection was closed at once because of the limit of that flag.
    pub(crate) fn connection_refused(&self, limit: &'static str) {
        self.refused.get_or_create(&Limit { limit: limit.to_owned() }).inc();
    }

    /// A call was refused because of the limit of that name.
    fn limit_reached(&self, limit: &str) {
        self.limits_reached.get_or_create(&Limit { limit: limit.to_owned() }).inc();
    }

    /// A TLS handshake did not succeed.
    pub(crate) fn handshake_failed(&self) {
        self.handshakes.inc();
    }

    /// A client did not take its answer in time.
    pub(crate) fn answer_not_taken(&self) {
        self.answers_not_taken.inc();
    }

    /// Counts audit rows that could not be written.
    pub(crate) fn audit_rows_lost(&self, rows: usize) {
        self.audit_rows_lost.inc_by(rows as u64);
    }

    /// The database was asked whether watches may go on.
    pub(crate) fn watch_rechecked(&self) {
        self.watch_rechecks.inc();
    }

    /// Certificate files changed.
    pub(crate) fn certificate_reload(&self, usable: bool) {
        self.reloads.get_or_create(&Loaded { result: if usable { USABLE } else { UNUSABLE } }).inc();
    }

    fn answered(&self, path: &str, code: Code, since: Instant) {
        // Anybody can ask for any path; only those that exist become labels.
        let method = if code == Code::Unimplemented { OTHER } else { path.trim_start_matches('/') };
        self.requests.get_or_create(&Answered { method: method.to_owned(), code: format!("{code:?}") }).inc();
        self.seconds.get_or_create(&Method { method: method.to_owned() }).observe(since.elapsed().as_secs_f64());
    }
}

/// Counts the calls that go through.
impl<S> Layer<S> for Metrics {
    type Service = Measured<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Measured { inner, metrics: self.clone() }
    }
}

/// A service whose calls are counted.
#[derive(Debug, Clone)]
pub(crate) struct Measured<S> {
    inner: S,
    metrics: Metrics,
}

impl<S, B, A> Service<http::Request<B>> for Measured<S>
where
    S: Service<http::Request<B>, Response = http::Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (path, metrics, began) = (request.uri().path().to_owned(), self.metrics.clone(), Instant::now());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let Ok(response) = &answer {
                let code = response.headers().get(STATUS).map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes()));
                metrics.answered(&path, code, began);
                if let Some(limit) = response.headers().get(REACHED_LIMIT).and_then(|limit| limit.to_str().ok()) {
                    metrics.limit_reached(limit);
                }
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn paths_that_do_not_exist_make_no_labels() {
        let metrics = Metrics::new();
        metrics.answered("/zopp.ZoppService/GetSecret", Code::Ok, Instant::now());
        for number in 0..100 {
            metrics.answered(&format!("/x/{number}"), Code::Unimplemented, Instant::now());
        }
        let text = metrics.text().unwrap();
        assert!(
            text.contains("zopp_server_requests_total{method=\"zopp.ZoppService/GetSecret\",code=\"Ok\"} 1\n"),
            "{text}"
        );
        assert!(text.contains("zopp_server_requests_total{method=\"other\",code=\"Unimplemented\"} 100\n"), "{text}");
        assert!(!text.contains("/x/"), "{text}");
    }

    #[test]
    fn connections_are_given_back() {
        let metrics = Metrics::new();
        let counted = metrics.connection();
        assert!(metrics.text().unwrap().contains("zopp_server_connections 1\n"));
        drop(counted);
        assert!(metrics.text().unwrap().contains("zopp_server_connections 0\n"));
    }
}

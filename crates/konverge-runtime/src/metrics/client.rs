//! Requests to the API server, counted where they leave.

use std::task::{Context, Poll};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;
use tower::{Layer, Service};

use super::registry::duration_buckets;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    code: String,
    method: String,
    host: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: String,
    code: String,
    host: String,
}

/// The series of client-go, as a layer for a client: `rest_client_requests_total{code,method,host}` and
/// `rest_client_request_duration_seconds{verb,code,host}`. The duration ends when the answer begins, so for a watch it is not the
/// length of the watch. There, the code is ours. It is `<error>` where no answer came.
#[derive(Clone)]
pub struct ClientMetrics {
    requests: Family<Labels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
    host: String,
}

impl ClientMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let requests = Family::default();
        registry.register("rest_client_requests", "Requests to the API server", requests.clone());
        let durations = Family::new_with_constructor(duration_buckets as fn() -> Histogram);
        registry.register(
            "rest_client_request_duration_seconds",
            "How long the API server took to begin its answers",
            durations.clone(),
        );
        Self { requests, durations, host: String::new() }
    }

    /// The layer for a client of `host`.
    #[must_use]
    pub fn for_host(&self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self.clone() }
    }
}

impl<S> Layer<S> for ClientMetrics {
    type Service = ClientMetricsService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ClientMetricsService { inner, metrics: self.clone() }
    }
}

/// Counts what passes.
#[derive(Clone)]
pub struct ClientMetricsService<S> {
    inner: S,
    metrics: ClientMetrics,
}

impl<S, Q, A> Service<Request<Q>> for ClientMetricsService<S>
where
    S: Service<Request<Q>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let (metrics, method, began) = (self.metrics.clone(), request.method().as_str().to_owned(), Instant::now());
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            let code =
                answer.as_ref().map_or_else(|_| "<error>".to_owned(), |answer| answer.status().as_str().to_owned());
            let ClientMetrics { requests, durations, host } = metrics;
            let labels = DurationLabels { verb: method.clone(), code: code.clone(), host: host.clone() };
            durations.get_or_create(&labels).observe(began.elapsed().as_secs_f64());
            requests.get_or_create(&Labels { code, method, host }).inc();
            answer
        }
        .boxed()
    }
}

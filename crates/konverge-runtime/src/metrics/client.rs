//! Requests to the API server, counted where they leave.

use std::task::{Context, Poll};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tower::{Layer, Service};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    code: String,
    method: String,
    host: String,
}

/// `rest_client_requests_total{code,method,host}`, as a layer for a client. The code is `<error>` where no answer came.
#[derive(Clone)]
pub struct ClientMetrics {
    requests: Family<Labels, Counter>,
    host: String,
}

impl ClientMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let requests = Family::default();
        registry.register("rest_client_requests", "Requests to the API server", requests.clone());
        Self { requests, host: String::new() }
    }

    /// The layer for a client of `host`.
    #[must_use]
    pub fn for_host(&self, host: &str) -> Self {
        Self { requests: self.requests.clone(), host: host.to_owned() }
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
        let (requests, host, method) =
            (self.metrics.requests.clone(), self.metrics.host.clone(), request.method().as_str().to_owned());
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            let code =
                answer.as_ref().map_or_else(|_| "<error>".to_owned(), |answer| answer.status().as_str().to_owned());
            requests.get_or_create(&Labels { code, method, host }).inc();
            answer
        }
        .boxed()
    }
}

//! One address for the kubelet, for Prometheus and for people: `/healthz`, `/readyz`, `/metrics`, and `/debug/log` where there is a
//! log filter to change.

mod log;

use std::net::SocketAddr;

use axum::{
    Router,
    extract::{RawQuery, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

use crate::{
    checks::{Checks, Report},
    metrics::Metrics,
    telemetry::LogFilter,
};

/// An address that is not available.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for health and metrics; is another process using it? choose another address")]
pub struct BindError {
    /// What was asked for.
    pub address: SocketAddr,
    /// What the system said.
    #[source]
    pub source: std::io::Error,
}

/// A server that has its address but does not answer yet.
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    pages: Router<Shared>,
}

impl HttpServer {
    /// Takes the address; port 0 takes a free one.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let bind = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address, pages: Router::new() })
        };
        bind.await.map_err(|source| BindError { address, source })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers `GET path` with the JSON that `page` writes. It must not wait.
    pub fn page(&mut self, path: &str, page: impl Fn() -> String + Clone + Send + Sync + 'static) {
        let answer = move || async move { ([(CONTENT_TYPE, "application/json")], page()) };
        self.pages = std::mem::take(&mut self.pages).route(path, get(answer));
    }

    /// Lets the log filter be read and changed at `/debug/log`, from within the machine or the pod.
    pub fn log_filter(&mut self, filter: LogFilter) {
        self.pages = std::mem::take(&mut self.pages).merge(log::router(filter));
    }

    /// Answers until dropped.
    pub async fn serve(self, checks: Checks, metrics: Metrics) -> std::io::Result<()> {
        let router = self
            .pages
            .route(
                "/healthz",
                get(|State((checks, _)): State<Shared>, query: RawQuery| async move { answer(checks.live(), &query) }),
            )
            .route(
                "/readyz",
                get(|State((checks, _)): State<Shared>, query: RawQuery| async move { answer(checks.ready(), &query) }),
            )
            .route("/metrics", get(|State((_, metrics)): State<Shared>| async move { scrape(&metrics) }))
            .with_state((checks, metrics));
        axum::serve(self.listener, router.into_make_service_with_connect_info::<SocketAddr>()).await
    }
}

type Shared = (Checks, Metrics);

/// Every line with `?verbose` or when something fails, else `ok`: as Kubernetes components answer.
fn answer(report: Report, RawQuery(query): &RawQuery) -> Response {
    let verbose = query
        .as_deref()
        .is_some_and(|query| query.split('&').any(|part| part == "verbose" || part.starts_with("verbose=")));
    match (report.passed, verbose) {
        (true, false) => (StatusCode::OK, "ok".to_owned()),
        (true, true) => (StatusCode::OK, report.text),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, report.text),
    }
    .into_response()
}

fn scrape(metrics: &Metrics) -> Response {
    match metrics.encode() {
        Ok(text) => {
            ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot write the metrics: {error}")).into_response(),
    }
}

//! One address for the kubelet, for Prometheus and for people: `/healthz`, `/readyz`, `/metrics`, and `/debug/log` where there is a
//! log filter to change. Metrics may have an address of their own instead, with TLS and for callers with a right to them:
//! [`MetricsServer`]. Where several jobs are one process, each has a page of its own for its metrics.

mod authentication;
mod connections;
mod health;
mod jobs;
mod listen;
mod log;
mod metrics_server;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
};

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use tokio::net::TcpListener;

use crate::{checks::Checks, metrics::Metrics, telemetry::LogFilter};

pub use authentication::Authentication;
pub use listen::{BindError, Listen, ListenError};
pub(crate) use metrics_server::{Bound as BoundMetricsServer, MetricsPage};
pub use metrics_server::{MetricsServer, MetricsServerError};

/// A server that has its address but does not answer yet.
pub struct HttpServer {
    listener: Option<(TcpListener, SocketAddr)>,
    pages: Router,
}

impl HttpServer {
    /// A server without an address.
    pub(crate) fn nowhere() -> Self {
        Self { listener: None, pages: Router::new() }
    }

    /// Takes the address; port 0 takes a free one.
    pub async fn bind(listen: Listen) -> Result<Self, BindError> {
        let listener = match listen {
            Listen::Nowhere => None,
            Listen::At(address) => Some(listen::bind(address).await?),
        };
        Ok(Self { listener, ..Self::nowhere() })
    }

    /// Where it listens; port 0 says nowhere.
    pub fn address(&self) -> SocketAddr {
        self.listener.as_ref().map_or((Ipv4Addr::UNSPECIFIED, 0).into(), |(_, address)| *address)
    }

    /// Whether it has an address.
    pub(crate) fn listens(&self) -> bool {
        self.listener.is_some()
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

    /// Answers until dropped, with metrics unless they are served elsewhere.
    pub async fn serve(self, checks: Checks, metrics: Option<Metrics>) {
        self.serve_page(checks, metrics.map(|metrics| MetricsPage::new(metrics, None))).await;
    }

    /// The same, with metrics for the readers whom their page admits.
    pub(crate) async fn serve_page(self, checks: Checks, metrics: Option<MetricsPage>) {
        let Some((listener, address)) = self.listener else { return std::future::pending().await };
        let what = if metrics.is_some() { "health and metrics" } else { "health" };
        tracing::info!(%address, "serving {what}");
        let mut router = self.pages.merge(health::router(checks));
        if let Some(metrics) = metrics {
            if metrics.asks() {
                metrics_server::warn_of_tokens_in_the_open(address);
            }
            router = router.merge(metrics_server::router(metrics));
        }
        connections::serve(listener, None, router).await;
    }

    /// Answers until dropped, with the metrics of each of several jobs.
    pub(crate) async fn serve_jobs(self, checks: Checks, metrics: BTreeMap<String, MetricsPage>) {
        let Some((listener, address)) = self.listener else { return std::future::pending().await };
        tracing::info!(%address, "serving health and metrics of all jobs");
        if metrics.values().any(MetricsPage::asks) {
            metrics_server::warn_of_tokens_in_the_open(address);
        }
        let router = self.pages.merge(health::router(checks)).merge(jobs::router(metrics));
        connections::serve(listener, None, router).await;
    }
}

//! Metrics on an address of their own, secured and for those who may read them.

use std::{net::SocketAddr, sync::Arc};

use crate::tls::Certificate;
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    authentication::Authentication,
    connections,
    listen::{BindError, Listen, bind},
};
use crate::{checks::Checks, metrics::Metrics};

/// Where metrics are served instead of beside health, and to whom. For [`Manager::metrics_server`](crate::Manager::metrics_server).
#[derive(Debug)]
#[non_exhaustive]
pub struct MetricsServer {
    /// Where it listens. [`Listen::Nowhere`] serves no metrics at all.
    pub address: Listen,
    /// The certificate for HTTPS; without one it is plain HTTP.
    pub tls: Option<Certificate>,
    /// The authentication of readers. Without it, every client that reaches the port may read.
    pub authentication: Option<Authentication>,
}

konverge_core::with!(MetricsServer);

/// Why there is no server for metrics.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsServerError {
    /// The address is not available.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The TLS library has no protocol that it can speak.
    #[error("cannot secure connections for metrics")]
    Tls(#[source] tokio_rustls::rustls::Error),
}

impl From<SocketAddr> for MetricsServer {
    /// Plain HTTP for everybody.
    fn from(address: SocketAddr) -> Self {
        Listen::from(address).into()
    }
}

impl From<Listen> for MetricsServer {
    /// Plain HTTP for everybody, or no metrics at all.
    fn from(address: Listen) -> Self {
        Self { address, tls: None, authentication: None }
    }
}

/// A server that has bound its address and does not answer yet.
pub(crate) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<(TlsAcceptor, Certificate)>,
    authentication: Option<Authentication>,
}

impl Bound {
    /// Takes the address, whatever the server says of it, and shows among the checks how its certificate fares.
    pub(crate) async fn new(
        server: MetricsServer,
        address: SocketAddr,
        checks: &Checks,
    ) -> Result<Self, MetricsServerError> {
        let (listener, address) = bind(address).await?;
        let mut tls = None;
        if let Some(certificate) = server.tls {
            // Answers are read one after the other; HTTP/2 would only bring its own ways to keep a server busy.
            let config = certificate.slot().server_config(None, &["http/1.1"]).map_err(MetricsServerError::Tls)?;
            checks.warning("metrics-certificate", certificate.in_order());
            tls = Some((TlsAcceptor::from(Arc::new(config)), certificate));
        }
        Ok(Self { listener, address, tls, authentication: server.authentication })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until dropped.
    pub(crate) async fn serve(self, metrics: Metrics) {
        let Self { listener, address, tls, authentication } = self;
        let (secure, asks) = (tls.is_some(), authentication.is_some());
        tracing::info!(%address, secure, authentication = asks, "serving metrics");
        if asks && !secure {
            warn_of_tokens_in_the_open(address);
        }
        let router = router(MetricsPage::new(metrics, authentication));
        let (acceptor, certificate) = tls.unzip();
        let keeping = async {
            if let Some(certificate) = certificate {
                certificate.keep(|_| {}, CancellationToken::new()).await;
            }
        };
        tokio::join!(connections::serve(listener, acceptor, router), keeping);
    }
}

pub(super) fn warn_of_tokens_in_the_open(address: SocketAddr) {
    tracing::warn!(
        %address,
        "METRICS ASK FOR BEARER TOKENS OVER PLAIN HTTP: anybody who can listen on the way can take a token and use it; give the \
         server for metrics a certificate"
    );
}

/// Serves the page at `/metrics`.
pub(super) fn router(page: MetricsPage) -> Router {
    Router::new().route("/metrics", get(read)).with_state(Arc::new(page))
}

async fn read(State(page): State<Arc<MetricsPage>>, uri: Uri, headers: HeaderMap) -> Response {
    page.read(uri.path(), &headers).await
}

/// The series of one program, and who may read them.
pub(crate) struct MetricsPage {
    metrics: Metrics,
    authentication: Option<Authentication>,
}

impl MetricsPage {
    pub(crate) fn new(metrics: Metrics, authentication: Option<Authentication>) -> Self {
        Self { metrics, authentication }
    }

    /// Whether it asks who reads.
    pub(super) fn asks(&self) -> bool {
        self.authentication.is_some()
    }

    /// Returns the response at this path for a client with these headers.
    pub(super) async fn read(&self, path: &str, headers: &HeaderMap) -> Response {
        if let Some(authentication) = &self.authentication
            && let Err(refusal) = authentication.admit(headers, path).await
        {
            return refusal.into_response();
        }
        scrape(&self.metrics)
    }
}

fn scrape(metrics: &Metrics) -> Response {
    match metrics.encode() {
        Ok(text) => {
            ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot write the metrics: {error}")).into_response(),
    }
}

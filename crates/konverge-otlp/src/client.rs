//! The way to the collector: the HTTP client that the Kubernetes client is made of, so that no other one comes with the exporter.

use std::{
    error::Error,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use opentelemetry_http::{HttpClient, HttpError};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::{runtime::Handle, time::timeout};

/// The exporter sends one request at a time from a thread of its own; one that hangs keeps only that thread waiting.
const LIMIT: Duration = Duration::from_secs(10);

/// An answer is a few bytes. A longer one is not of a collector.
const LONGEST_ANSWER: usize = 64 * 1024;

type Inner = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

#[derive(Debug, Clone)]
pub(crate) struct Client {
    inner: Inner,
    /// The exporter's thread is no part of a runtime.
    runtime: Handle,
    /// For the log; the headers have tokens in them, this has not.
    target: String,
    is_away: Arc<AtomicBool>,
}

impl Client {
    pub(crate) fn new(target: &Uri, runtime: Handle) -> Result<Self, io::Error> {
        let connector = if target.scheme_str() == Some("https") {
            let builder = HttpsConnectorBuilder::new();
            builder.with_provider_and_native_roots(ring::default_provider())?.https_only().enable_http1().build()
        } else {
            // The roots of a system that has none must not be missed where nothing is encrypted.
            let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(io::Error::other)?
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth();
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build()
        };
        let inner = legacy::Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { inner, runtime, target: target.to_string(), is_away: Arc::default() })
    }

    /// Logs once that spans are lost, and once that they are not any more.
    fn note(&self, failed: Option<&str>) {
        match (failed, self.is_away.swap(failed.is_some(), Ordering::Relaxed)) {
            (Some(why), false) => {
                tracing::warn!(
                    collector = self.target,
                    why,
                    "the collector takes no spans; they are dropped until it does"
                );
            }
            (None, true) => tracing::info!(collector = self.target, "the collector takes spans again"),
            _ => {}
        }
    }
}

impl Client {
    async fn ask(self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let exchange = async {
            let answer = self.inner.request(request.map(Full::new)).await?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, LONGEST_ANSWER).collect().await?.to_bytes();
            Ok(Response::from_parts(head, body))
        };
        let late = || Err(format!("no answer within {LIMIT:?}").into());
        let answer: Result<Response<Bytes>, HttpError> = timeout(LIMIT, exchange).await.unwrap_or_else(|_| late());
        match &answer {
            Ok(answer) if answer.status().is_success() => self.note(None),
            Ok(answer) => self.note(Some(&format!("it answers {}", answer.status()))),
            Err(error) => self.note(Some(&deepest(&**error))),
        }
        answer
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        self.runtime.spawn(self.clone().ask(request)).await?
    }
}

/// hyper says no more than "client error"; what happened is beneath.
fn deepest(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

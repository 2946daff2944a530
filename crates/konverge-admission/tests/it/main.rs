//! Webhooks through real connections, called by a test and by a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod admission;
mod calls;
mod certificates;
mod connections;
mod conversion;
mod http_client;
mod self_made;
mod stage;
mod things;

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use konverge_admission::{AdmissionMetrics, Certificates, Limits, Security, WebhookServer, Webhooks};
use prometheus_client::{encoding::text, registry::Registry};
use rcgen::{CertificateParams, KeyPair};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than anything takes on two busy cores.
const SOON: Duration = Duration::from_secs(60);

/// Any free port.
fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A server that runs, and ends with the test.
struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
    registry: Registry,
    ready: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Running {
    async fn start(webhooks: Webhooks, security: impl Into<Security>, limits: Limits) -> Self {
        Self::start_at(anywhere(), webhooks, security, limits).await
    }

    async fn start_at(address: SocketAddr, webhooks: Webhooks, security: impl Into<Security>, limits: Limits) -> Self {
        let mut registry = Registry::default();
        let metrics = AdmissionMetrics::register(&mut registry);
        let server = WebhookServer::bind(address, webhooks, security).await.unwrap().limits(limits).metrics(metrics);
        let (address, ready, stop) = (server.address(), Box::new(server.readiness()), CancellationToken::new());
        assert!(ready().is_err(), "it does not answer yet");
        let task = tokio::spawn(server.run(stop.clone()));
        Self { address, stop, task, registry, ready }
    }

    fn metrics(&self) -> String {
        let mut encoded = String::new();
        text::encode(&mut encoded, &self.registry).unwrap();
        encoded
    }

    fn assert_metric(&self, line: &str) {
        let metrics = self.metrics();
        assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

/// A certificate for 127.0.0.1 in two files.
struct FilePair {
    folder: tempfile::TempDir,
    certificate: String,
}

impl FilePair {
    fn new() -> Self {
        let mut this = Self { folder: tempfile::tempdir().unwrap(), certificate: String::new() };
        this.renew();
        this
    }

    /// Writes another pair.
    fn renew(&mut self) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        self.certificate = certificate.pem();
        // As a person would: not both at once.
        std::fs::write(self.folder.path().join("tls.crt"), &self.certificate).unwrap();
        std::fs::write(self.folder.path().join("tls.key"), key.serialize_pem()).unwrap();
    }

    fn certificates(&self) -> Certificates {
        let file = |name| self.folder.path().join(name);
        Certificates::from_files(file("tls.crt"), file("tls.key")).unwrap().look_every(Duration::from_millis(20))
    }
}

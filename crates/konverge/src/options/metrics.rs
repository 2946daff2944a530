//! Metrics on an address of their own.

use std::{fmt, path::PathBuf};

use konverge_runtime::{
    Manager,
    http_server::{Authentication, Listen, MetricsServer, MetricsServerError},
    tls::Certificate,
};
use kube::Client;

use crate::{flags::Args, start_error::StartError};

/// Where metrics are served, and to whom.
#[derive(Debug, Clone, Default, Args)]
#[non_exhaustive]
pub struct MetricsOptions {
    /// Where /metrics is served, such as :8443; 0 for nowhere [default: where /healthz is]
    #[arg(id = "metrics-address", long, env = "KONVERGE_METRICS_ADDRESS", value_name = "ADDRESS")]
    pub address: Option<Listen>,
    /// Serve metrics over HTTPS, with a certificate made in memory unless one is named
    #[arg(id = "metrics-tls", long, env = "KONVERGE_METRICS_TLS", requires = "metrics-address")]
    pub tls: bool,
    /// PEM file with the certificate for metrics and its chain
    #[arg(
        id = "metrics-certificate",
        long,
        env = "KONVERGE_METRICS_CERTIFICATE",
        value_name = "FILE",
        requires_all = ["metrics-tls", "metrics-key"]
    )]
    pub certificate: Option<PathBuf>,
    /// PEM file with the key of the certificate for metrics
    #[arg(
        id = "metrics-key",
        long,
        env = "KONVERGE_METRICS_KEY",
        value_name = "FILE",
        requires = "metrics-certificate"
    )]
    pub key: Option<PathBuf>,
    /// Let the API server say who may read metrics; needs a role from generate --metrics-authentication
    #[arg(id = "metrics-authentication", long, env = "KONVERGE_METRICS_AUTHENTICATION", requires = "metrics-address")]
    pub authentication: bool,
}

impl MetricsOptions {
    /// Takes the address, if there is one of metrics' own.
    pub(crate) async fn serve(&self, manager: &mut Manager, client: &Client) -> Result<(), StartError> {
        let Some(address) = self.address else { return Ok(()) };
        let failed =
            |source: Box<dyn std::error::Error + Send + Sync>| StartError::Part { part: "metrics".to_owned(), source };
        let tls = match (&self.certificate, &self.key) {
            _ if !self.tls => None,
            (Some(certificate), Some(key)) => {
                Some(Certificate::from_files(certificate, key).map_err(|error| failed(error.into()))?)
            }
            _ => Some(Certificate::self_signed(["localhost"]).map_err(|error| failed(error.into()))?),
        };
        let authentication = self.authentication.then(|| Authentication::new(client.clone()));
        let server = MetricsServer::from(address).with(|server| {
            server.tls = tls;
            server.authentication = authentication;
        });
        match manager.metrics_server(server).await {
            Ok(_) => Ok(()),
            Err(MetricsServerError::Bind(error)) => Err(error.into()),
            Err(error) => Err(failed(error.into())),
        }
    }
}

impl fmt::Display for MetricsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, tls, certificate, key: _, authentication } = self;
        let address = address.map_or_else(|| "default".to_owned(), |address| address.to_string());
        write!(f, "metrics-address={address} metrics-tls={tls} ")?;
        write!(f, "metrics-certificate={} metrics-authentication={authentication}", certificate.is_some())
    }
}

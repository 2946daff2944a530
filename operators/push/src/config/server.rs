//! Where the program serves, and how it reaches the API server.

use std::{fmt, path::PathBuf};

use clap::{ArgAction, Args};
use konverge_jobs::MetricsOptions;
use konverge_runtime::http_server::Listen;
use konverge_vault::environment::boolean;

use super::values::file;

/// Where the program serves, and how it reaches the API server.
#[derive(Debug, Clone, Args)]
pub struct ServerOptions {
    /// Where /metrics is served; 0 is nowhere
    #[arg(long, env = "VAULT_SYNC_METRICS_BIND_ADDRESS", default_value = ":8080", value_parser = super::values::metrics_address, value_name = "ADDRESS")]
    pub metrics_bind_address: Listen,
    /// Show metrics only to who may get them by the roles of the cluster
    #[arg(long, env = "VAULT_SYNC_ENABLE_METRICS_AUTH", default_value = "true", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL")]
    pub enable_metrics_auth: bool,
    /// Serve metrics over TLS, with a certificate made in memory unless one is named
    #[arg(long, env = "VAULT_SYNC_METRICS_TLS")]
    pub metrics_tls: bool,
    /// Certificate with which metrics are served over TLS, in PEM
    #[arg(long, env = "VAULT_SYNC_METRICS_CERT_FILE", requires = "metrics_key_file", value_name = "FILE")]
    pub metrics_cert_file: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, env = "VAULT_SYNC_METRICS_KEY_FILE", requires = "metrics_cert_file", value_name = "FILE")]
    pub metrics_key_file: Option<PathBuf>,
    /// Where /healthz and /readyz are served; 0 is nowhere
    #[arg(long, env = "VAULT_SYNC_HEALTH_PROBE_BIND_ADDRESS", default_value = ":8081", value_parser = super::values::health_address, value_name = "ADDRESS")]
    pub health_probe_bind_address: Listen,
    /// Let one of several replicas work while the others stand by
    #[arg(long, env = "VAULT_SYNC_LEADER_ELECT", default_value = "false", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL")]
    pub leader_elect: bool,
    /// Kubeconfig file [default: the pod's service account, else what kubectl uses]
    #[arg(long, env = "VAULT_SYNC_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

impl ServerOptions {
    /// Where the program serves its metrics, and to whom.
    pub fn metrics(&self) -> MetricsOptions {
        MetricsOptions {
            address: Some(self.metrics_bind_address),
            authentication: self.enable_metrics_auth,
            tls: self.metrics_tls,
            certificate: self.metrics_cert_file.clone().zip(self.metrics_key_file.clone()),
        }
    }
}

impl fmt::Display for ServerOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Taken apart so that a new setting is not forgotten here.
        let Self {
            metrics_bind_address,
            enable_metrics_auth,
            metrics_tls,
            metrics_cert_file,
            metrics_key_file: _,
            health_probe_bind_address,
            leader_elect,
            kubeconfig,
        } = self;
        write!(formatter, "metrics-bind-address={metrics_bind_address} enable-metrics-auth={enable_metrics_auth} ")?;
        write!(formatter, "metrics-tls={metrics_tls} ")?;
        write!(formatter, "metrics-cert-file={} ", file(metrics_cert_file.as_ref()))?;
        write!(formatter, "health-probe-bind-address={health_probe_bind_address} leader-elect={leader_elect} ")?;
        write!(formatter, "kubeconfig={}", file(kubeconfig.as_ref()))
    }
}

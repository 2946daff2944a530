//! The HTTP server for health and metrics.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
};

use konverge_runtime::http_server::Listen;

use crate::{flags::Args, options::MetricsOptions};

/// The HTTP endpoints and their addresses.
#[derive(Debug, Clone, Args)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Where /healthz, /readyz and, unless told otherwise, /metrics are served
    #[arg(long, env = "KONVERGE_ADDRESS", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub address: Listen,
    /// Where metrics are served.
    #[command(flatten)]
    pub metrics: MetricsOptions,
    /// Show the work queues at /debug/queues: names of objects, reasons and attempts, without authentication
    #[arg(long, env = "KONVERGE_DEBUG_QUEUES")]
    pub debug_queues: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let address = Listen::from(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080)));
        Self { address, metrics: MetricsOptions::default(), debug_queues: false }
    }
}

impl fmt::Display for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, metrics, debug_queues } = self;
        write!(f, "address={address} {metrics} debug-queues={debug_queues}")
    }
}

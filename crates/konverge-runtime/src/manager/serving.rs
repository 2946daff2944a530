//! The settings of a program's HTTP servers.

use std::net::SocketAddr;

use super::{
    Manager,
    servers::{MetricsAt, Servers},
};
use crate::{
    http_server::{
        Authentication, BindError, BoundMetricsServer, HttpServer, Listen, MetricsServer, MetricsServerError,
    },
    metrics::Metrics,
    telemetry::LogFilter,
};

impl Manager {
    /// Takes the address for `/healthz`, `/readyz` and `/metrics`, before anything else is tried.
    pub async fn bind(address: SocketAddr, metrics: Metrics) -> Result<Self, BindError> {
        Self::listen(address.into(), metrics).await
    }

    /// [`bind`](Self::bind), where there may be no such server at all.
    pub async fn listen(listen: Listen, metrics: Metrics) -> Result<Self, BindError> {
        let health = HttpServer::bind(listen).await?;
        Ok(Self { servers: Servers { health, metrics: MetricsAt::WithHealth(None) }, ..Self::new(metrics) })
    }

    /// Serves `/metrics` here, and no longer beside health. Takes the address at once and tells which one it is, if there is one;
    /// answers when the program runs.
    ///
    /// ```no_run
    /// use konverge_runtime::{Manager, http_server::{Authentication, Listen, MetricsServer}, tls::Certificate};
    ///
    /// # async fn example(manager: &mut Manager, client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let certificate = Certificate::from_files("/tls/tls.crt", "/tls/tls.key")?;
    /// let address: Listen = ":8443".parse()?;
    /// let server = MetricsServer::from(address).with(|server| {
    ///     server.tls = Some(certificate);
    ///     server.authentication = Some(Authentication::new(client));
    /// });
    /// manager.metrics_server(server).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn metrics_server(&mut self, server: MetricsServer) -> Result<Option<SocketAddr>, MetricsServerError> {
        let Listen::At(address) = server.address else {
            self.servers.metrics = MetricsAt::Nowhere(server.authentication.map(Box::new));
            return Ok(None);
        };
        let bound = BoundMetricsServer::new(server, address, &self.checks).await?;
        let address = bound.address();
        self.servers.metrics = MetricsAt::Own(Box::new(bound));
        Ok(Some(address))
    }

    /// Authenticates readers of `/metrics` where it is beside health. A [`metrics_server`](Self::metrics_server) has an authentication of its own.
    pub fn metrics_authentication(&mut self, authentication: Authentication) {
        if let MetricsAt::WithHealth(readers) = &mut self.servers.metrics {
            *readers = Some(Box::new(authentication));
        }
    }

    /// Where it listens; port 0 says nowhere.
    pub fn address(&self) -> SocketAddr {
        self.servers.health.address()
    }

    /// Answers `GET path` with the JSON that `page` writes, beside health and metrics. It must not wait.
    pub fn page(&mut self, path: &str, page: impl Fn() -> String + Clone + Send + Sync + 'static) {
        self.servers.health.page(path, page);
    }

    /// Serves the log filter at `/debug/log`, beside health and metrics, to every client on the machine or in the pod: `GET` returns it, `PUT` sets
    /// it to the body, `DELETE` restores the initial one. Everybody else is refused.
    pub fn log_filter(&mut self, filter: LogFilter) {
        self.servers.health.log_filter(filter);
    }
}

//! The HTTP servers of a program: health beside metrics, or each at an address of its own.

use std::net::SocketAddr;

use futures::{FutureExt, future::BoxFuture};

use super::Manager;
use crate::{
    checks::Checks,
    http_server::{
        Authentication, BindError, BoundMetricsServer, HttpServer, Listen, MetricsPage, MetricsServer,
        MetricsServerError,
    },
    metrics::Metrics,
    telemetry::LogFilter,
};

/// The servers of a program that is being put together.
pub(super) struct Servers {
    health: HttpServer,
    metrics: MetricsAt,
}

/// Where metrics are served.
enum MetricsAt {
    WithHealth(Option<Box<Authentication>>),
    /// Nor is anybody let in who could not have read them there.
    Nowhere(Option<Box<Authentication>>),
    Own(Box<BoundMetricsServer>),
}

impl Default for Servers {
    fn default() -> Self {
        Self { health: HttpServer::nowhere(), metrics: MetricsAt::WithHealth(None) }
    }
}

impl Servers {
    /// Answers until dropped, each server for itself.
    pub(super) fn serve(self, checks: Checks, metrics: Metrics) -> Vec<BoxFuture<'static, ()>> {
        let (beside_health, own) = match self.metrics {
            MetricsAt::WithHealth(authentication) => {
                (Some(MetricsPage::new(metrics, authentication.map(|it| *it))), None)
            }
            MetricsAt::Nowhere(_) => (None, None),
            MetricsAt::Own(server) => (None, Some(server.serve(metrics))),
        };
        let health = self.health.serve_page(checks, beside_health).boxed();
        [Some(health), own.map(FutureExt::boxed)].into_iter().flatten().collect()
    }

    /// The page of a program that serves its metrics nowhere itself, for the callers that could have read them there.
    pub(super) fn unserved(&mut self, metrics: &Metrics) -> Option<MetricsPage> {
        let authentication = match &mut self.metrics {
            MetricsAt::WithHealth(authentication) if !self.health.listens() => authentication.take(),
            MetricsAt::Nowhere(authentication) => authentication.take(),
            MetricsAt::WithHealth(_) | MetricsAt::Own(_) => return None,
        };
        Some(MetricsPage::new(metrics.clone(), authentication.map(|it| *it)))
    }
}

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

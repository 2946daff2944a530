//! The HTTP servers of a program: health beside metrics, or each at an address of its own.

use futures::{FutureExt, future::BoxFuture};

use crate::{
    checks::Checks,
    http_server::{Authentication, BoundMetricsServer, HttpServer, MetricsPage},
    metrics::Metrics,
};

/// The servers of a program that is being put together.
pub(super) struct Servers {
    pub(super) health: HttpServer,
    pub(super) metrics: MetricsAt,
}

/// Where metrics are served.
pub(super) enum MetricsAt {
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

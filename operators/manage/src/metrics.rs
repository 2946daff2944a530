//! The series of this job: calls to the management server, by route and code.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use konverge::{
    Home, Part, Setup, StartError,
    generate::Access,
    prometheus_client::{
        encoding::EncodeLabelSet,
        metrics::{counter::Counter, family::Family, histogram::Histogram},
        registry::Registry,
    },
};
use konverge_openzro::CallObserver;

/// Counts and times the calls to the management server. Clones share the series.
#[derive(Clone)]
pub struct Metrics {
    calls: Family<Call, Counter>,
    seconds: Family<Route, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    method: &'static str,
    route: &'static str,
    /// The status, or `none` without a complete answer.
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    method: &'static str,
    route: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let histogram = || Histogram::new([0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]);
        Self { calls: Family::default(), seconds: Family::new_with_constructor(histogram) }
    }
}

impl Metrics {
    /// What the client tells its calls to.
    pub fn observer(&self) -> CallObserver {
        let metrics = self.clone();
        Arc::new(move |record| {
            let (method, route) = (method(record.method.as_str()), record.route);
            let code = record.status.map_or_else(|| "none".to_owned(), |status| status.to_string());
            metrics.calls.get_or_create(&Call { method, route, code }).inc();
            metrics.seconds.get_or_create(&Route { method, route }).observe(record.took.as_secs_f64());
        })
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "openzro_requests",
            "Requests to the management server, by route and status",
            self.calls.clone(),
        );
        registry.register(
            "openzro_request_seconds",
            "Time from sending a request to the management server to the end of its answer",
            self.seconds.clone(),
        );
    }
}

fn method(method: &str) -> &'static str {
    match method {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

impl Part for Metrics {
    fn access(&self, _: &Home<'_>, _: &mut Access, _: &mut Access) {}

    fn describe(&self, registry: &mut Registry) {
        self.register(registry);
    }

    fn install(self: Box<Self>, setup: &mut Setup) -> BoxFuture<'_, Result<(), StartError>> {
        setup.metrics.register(|registry| self.register(registry));
        std::future::ready(Ok(())).boxed()
    }
}

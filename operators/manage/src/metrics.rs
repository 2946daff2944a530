//! The series of this job: calls to the management server, by route and code, and what keeps calls back.

use std::sync::{Arc, Mutex, PoisonError};

use futures::{FutureExt, future::BoxFuture};
use konverge::{
    Home, Part, Setup, StartError,
    generate::{
        Access,
        watching::{Alert, Inhibition, Panel},
    },
    prometheus_client::{
        encoding::EncodeLabelSet,
        metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
        registry::Registry,
    },
};
use konverge_openzro::{CallObserver, OpenZro};

use crate::watching;

/// Counts and times the calls to the management server. Clones share the series.
#[derive(Clone)]
pub struct Metrics {
    calls: Family<Call, Counter>,
    seconds: Family<Route, Histogram, fn() -> Histogram>,
    budgets: Family<Account, Gauge>,
    pauses: Family<Account, Gauge>,
    /// The client of each account.
    clients: Arc<Mutex<Vec<(Account, OpenZro)>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Account {
    /// The namespace that has an account of its own; empty for that of the operator.
    scope: String,
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
        Self {
            calls: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            budgets: Family::default(),
            pauses: Family::default(),
            clients: Arc::default(),
        }
    }
}

impl Metrics {
    /// Returns the observer to which the client reports its calls.
    pub fn observer(&self) -> CallObserver {
        let metrics = self.clone();
        Arc::new(move |record| {
            let (method, route) = (method(record.method.as_str()), record.route);
            let code = record.status.map_or_else(|| "none".to_owned(), |status| status.to_string());
            metrics.calls.get_or_create(&Call { method, route, code }).inc();
            metrics.seconds.get_or_create(&Route { method, route }).observe(record.took.as_secs_f64());
        })
    }

    /// Shows the budget of an account, and whether its requests are kept back.
    pub fn watch(&self, scope: &str, client: &OpenZro) {
        let account = Account { scope: scope.to_owned() };
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push((account, client.clone()));
    }

    /// Brings the series of the accounts up to date.
    fn measure(&self) {
        for (account, client) in self.clients.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let budget = client.limits().rate.map_or(0, |rate| i64::from(rate.get()));
            self.budgets.get_or_create(account).set(budget);
            self.pauses.get_or_create(account).set(client.outage().is_some().into());
        }
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
        registry.register(
            "openzro_request_budget",
            "Requests a second that the management server of an account gets at most in the long run",
            self.budgets.clone(),
        );
        registry.register(
            "openzro_requests_paused",
            "Whether requests of an account are kept back because the server is away, refuses the token or limits the rate: 1 for yes",
            self.pauses.clone(),
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
        // With a value its type is known.
        drop(self.calls.get_or_create(&Call { method: "GET", route: "", code: String::new() }));
        self.register(registry);
    }

    fn alerts(&self) -> &'static [Alert] {
        watching::ALERTS
    }

    fn inhibitions(&self) -> &'static [Inhibition] {
        watching::INHIBITIONS
    }

    fn panels(&self) -> &'static [Panel] {
        watching::PANELS
    }

    fn install(self: Box<Self>, setup: &mut Setup) -> BoxFuture<'_, Result<(), StartError>> {
        setup.metrics.register(|registry| self.register(registry));
        let metrics = self.clone();
        setup.metrics.before_scrape(move || metrics.measure());
        std::future::ready(Ok(())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use konverge::prometheus_client::encoding::text::encode;
    use konverge_core::SecretValue;
    use konverge_openzro::{Collection, Credential, OpenZroConfig};

    use super::*;

    #[tokio::test]
    async fn each_account_shows_its_budget_and_whether_it_is_paused() {
        let client = |address: &str| {
            let token = Credential::value(SecretValue::from("t".to_owned()));
            OpenZro::new(&OpenZroConfig::new(address, token).unwrap())
        };
        // Nothing listens there.
        let (idle, away) = (client("http://127.0.0.1:9"), client("http://127.0.0.1:9"));
        let metrics = Metrics::default();
        metrics.watch("", &idle);
        metrics.watch("shop", &away);
        // Fewer failures may be one connection's.
        for _ in 0..5 {
            away.list(&Collection::Groups).await.unwrap_err();
        }
        metrics.measure();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "openzro_request_budget{scope=\"\"} 100",
            "openzro_requests_paused{scope=\"\"} 0",
            "openzro_requests_paused{scope=\"shop\"} 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
    }
}

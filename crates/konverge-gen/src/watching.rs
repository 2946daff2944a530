//! A Grafana dashboard and Prometheus alerts for the series of a program.
//!
//! Both are made of one list of expressions. An expression whose series the program does not have is left out, so a program without
//! webhooks has no panel of webhooks. They find the program's series by `konverge_build_info`, so they need nothing of
//! how Prometheus is set up but its own labels `job` and `instance`; a `namespace` is kept if there is one.

mod alerts;
mod dashboard;
mod expression;

use prometheus_client::registry::Registry;
use serde_json::{Value, json};

pub use expression::{Series, series_in};

use crate::reference;

/// The series that a program has, by their names in the registry.
pub fn series(registry: &Registry) -> Series {
    Series::new(reference::described(registry).into_iter().map(|(name, _)| name))
}

/// The dashboard of `program`, to be imported into Grafana.
pub fn dashboard(program: &str, series: &Series) -> Value {
    let rows: Vec<_> = dashboard::PANELS.iter().filter(|panel| panel.is_of(series)).collect();
    let panels: Vec<Value> = rows.iter().enumerate().map(|(number, panel)| panel.json(number, program)).collect();
    json!({
        "uid": format!("konverge-{program}").chars().take(40).collect::<String>(),
        "title": program,
        "tags": ["konverge"],
        "schemaVersion": 39,
        "timezone": "browser",
        "time": { "from": "now-6h", "to": "now" },
        "refresh": "30s",
        "templating": { "list": [{
            "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
        }] },
        "panels": panels,
    })
}

/// The alerts of `program`, for the Prometheus operator.
pub fn prometheus_rule(program: &str, namespace: &str, series: &Series) -> Value {
    let alerts = alerts::ALERTS.iter().filter(|alert| alert.is_of(series));
    let rules: Vec<Value> = alerts.map(|alert| alert.json(program)).collect();
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": program,
            "namespace": namespace,
            "labels": { "app.kubernetes.io/name": program },
        },
        "spec": { "groups": [{ "name": program, "rules": rules }] },
    })
}

/// All expressions that either can have.
#[cfg(test)]
fn expressions() -> Vec<&'static str> {
    let panels = dashboard::PANELS.iter().flat_map(|panel| panel.queries.iter().map(|(expression, _)| *expression));
    panels.chain(alerts::ALERTS.iter().map(|alert| alert.expression)).collect()
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

    use super::*;

    #[test]
    fn expressions_are_whole_and_name_series() {
        for expression in expressions() {
            let count = |sign| expression.matches(sign).count();
            assert_eq!((count('('), count('['), count('{')), (count(')'), count(']'), count('}')), "{expression}");
            assert!(!series_in(expression).is_empty(), "{expression}");
            assert!(expression.contains("$mine") || expression.contains("$program"), "of all programs: {expression}");
        }
    }

    #[test]
    fn what_a_program_does_not_have_is_left_out() {
        let mut registry = Registry::default();
        registry.register("konverge_build_info", "Version", Gauge::<i64>::default());
        registry.register("controller_runtime_reconcile_errors", "Failures", Counter::<u64>::default());
        let series = series(&registry);
        let rule = prometheus_rule("tester", "here", &series);
        let rules = rule["spec"]["groups"][0]["rules"].as_array().unwrap();
        let names: Vec<_> = rules.iter().filter_map(|rule| rule["alert"].as_str()).collect();
        assert_eq!(names, ["OperatorAbsent", "OperatorRunsFail"]);
        for rule in rules {
            assert!(rule["expr"].as_str().unwrap().contains(r#"konverge_build_info{program="tester"}"#), "{rule}");
            assert!(!rule["annotations"]["runbook"].as_str().unwrap().is_empty());
        }
        let dashboard = dashboard("tester", &series);
        let text = dashboard.to_string();
        assert!(text.contains("controller_runtime_reconcile_errors_total") && !text.contains("workqueue"), "{text}");
        assert!(!text.contains("$mine") && !text.contains("$program"), "{text}");
    }
}

//! A Grafana dashboard and Prometheus alerts for the series of a program.
//!
//! Both are made of one list of expressions. An expression whose series the program does not have is left out, so a program without
//! webhooks has no panel of webhooks. They find the program's series by `konverge_build_info`, or by a series that you name. Of the setup of Prometheus they
//! need only its own labels `job` and `instance`. A `namespace` is kept if there is one.

mod alerts;
mod dashboard;
mod expression;

use std::{collections::BTreeSet, time::Duration};

use prometheus_client::registry::Registry;
use serde_json::{Value, json};

pub use alerts::{Alert, Inhibition};
pub use dashboard::Panel;
pub use expression::{Series, series_in};

use self::expression::complete;
use crate::reference;

/// The series that a program has, by their names in the registry.
pub fn series(registry: &Registry) -> Series {
    Series::new(reference::described(registry).into_iter().map(|series| series.name))
}

/// A program to be watched: its series, and what it adds to the panels and alerts that all programs have.
#[derive(Debug, Clone)]
pub struct Watching<'a> {
    program: &'a str,
    series: &'a Series,
    time_limit: Duration,
    alerts: &'a [Alert],
    inhibitions: &'a [Inhibition],
    panels: &'a [Panel],
    runbooks: Option<&'a str>,
    build_info: Option<&'a str>,
}

impl<'a> Watching<'a> {
    /// The panels and alerts that every program has, for a program with these series.
    #[must_use]
    pub fn new(program: &'a str, series: &'a Series) -> Self {
        Self {
            program,
            series,
            time_limit: TIME_LIMIT,
            alerts: &[],
            inhibitions: &[],
            panels: &[],
            runbooks: None,
            build_info: None,
        }
    }

    /// Sets the time limit of a run, if it is not that of the framework's controllers (5 minutes). It decides when a run counts as stuck.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Adds alerts of the program's own, before those of all programs.
    #[must_use]
    pub fn alerts(mut self, alerts: &'a [Alert]) -> Self {
        self.alerts = alerts;
        self
    }

    /// Adds inhibitions that involve alerts of the program's own.
    #[must_use]
    pub fn inhibitions(mut self, inhibitions: &'a [Inhibition]) -> Self {
        self.inhibitions = inhibitions;
        self
    }

    /// Adds panels of the program's own, before those of all programs.
    #[must_use]
    pub fn panels(mut self, panels: &'a [Panel]) -> Self {
        self.panels = panels;
        self
    }

    /// Gives each alert a `runbook_url`: this page, and the name of the alert in small letters as the anchor.
    #[must_use]
    pub fn runbooks(mut self, page: &'a str) -> Self {
        self.runbooks = Some(page);
        self
    }

    /// Sets the series that every process of the program has and no other program has, for a program without `konverge_build_info`.
    #[must_use]
    pub fn build_info(mut self, series: &'a str) -> Self {
        self.build_info = Some(series);
        self
    }

    /// Returns an expression with the program's name, and with what leaves only its series.
    fn complete(&self, expression: &str) -> String {
        let of_framework = format!("konverge_build_info{{program={:?}}}", self.program);
        complete(expression, self.program, self.build_info.unwrap_or(&of_framework))
    }

    /// Returns the series that the program's own alerts and panels name, and that the program does not have.
    #[must_use]
    pub fn unknown_series(&self) -> BTreeSet<&'a str> {
        let of_panels = self.panels.iter().flat_map(|panel| panel.queries.iter().map(|(expression, _)| *expression));
        let of_alerts = self.alerts.iter().map(|alert| alert.expression);
        let of_inhibitions = self.inhibitions.iter().map(|inhibition| inhibition.expression);
        let expressions = of_panels.chain(of_alerts).chain(of_inhibitions);
        expressions.flat_map(series_in).filter(|name| !self.series.has(name)).collect()
    }

    /// Returns the alerts that the program's own inhibitions name, and that the program does not have.
    #[must_use]
    pub fn unknown_alerts(&self) -> BTreeSet<&'a str> {
        let known: BTreeSet<_> = self.chosen_alerts().map(|alert| alert.name).collect();
        let named = self.inhibitions.iter().flat_map(|inhibition| [inhibition.source, inhibition.target]);
        named.filter(|name| !known.contains(name)).collect()
    }

    /// Returns the alerts whose series the program has.
    pub fn chosen_alerts(&self) -> impl Iterator<Item = &'a Alert> + use<'a> {
        let series = self.series;
        self.alerts.iter().chain(alerts::ALERTS).filter(move |alert| alert.is_of(series))
    }

    /// Returns the condition of an alert with its inhibitions, whose series the program has.
    #[must_use]
    pub fn condition(&self, alert: &Alert) -> String {
        let inhibitions = self.inhibitions.iter().chain(alerts::INHIBITIONS);
        let of_alert =
            inhibitions.filter(|inhibition| inhibition.target == alert.name && self.series.have(inhibition.expression));
        of_alert.fold(alert.expression.to_owned(), |condition, Inhibition { equal, expression, .. }| {
            format!("{condition} unless on ({equal}) {expression}")
        })
    }

    /// Returns the rules of the alerts.
    #[must_use]
    pub fn rules(&self) -> Vec<Value> {
        self.chosen_alerts().map(|alert| alert.json(self)).collect()
    }

    /// Returns the alerts, for the Prometheus operator.
    #[must_use]
    pub fn prometheus_rule(&self, namespace: &str) -> Value {
        let program = self.program;
        json!({
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {
                "name": program,
                "namespace": namespace,
                "labels": { "app.kubernetes.io/name": program },
            },
            "spec": { "groups": [{ "name": program, "rules": self.rules() }] },
        })
    }

    /// Returns the dashboard, to be imported into Grafana.
    #[must_use]
    pub fn dashboard(&self) -> Value {
        let rows = self.panels.iter().chain(dashboard::PANELS).filter(|panel| panel.is_of(self.series));
        let panels: Vec<Value> = rows.enumerate().map(|(number, panel)| panel.json(number, self)).collect();
        json!({
            "uid": format!("konverge-{}", self.program).chars().take(40).collect::<String>(),
            "title": self.program,
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
}

/// The time limit of a run of the framework's controllers, where their author sets none.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The dashboard of `program`, to be imported into Grafana.
pub fn dashboard(program: &str, series: &Series) -> Value {
    Watching::new(program, series).dashboard()
}

/// The alerts of `program`, for the Prometheus operator.
pub fn prometheus_rule(program: &str, namespace: &str, series: &Series) -> Value {
    Watching::new(program, series).prometheus_rule(namespace)
}

/// All expressions that alerts and panels of every program can have.
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

    const OWN: [Alert; 2] = [
        Alert {
            name: "TesterFails",
            expression: "sum by (namespace, job) (rate(tester_failures_total[5m]) $mine) > 0",
            since: "5m",
            severity: "warning",
            summary: "$program fails",
            runbook: "Look.",
        },
        Alert {
            name: "TesterMisspelt",
            expression: "tester_failure_total $mine > 0",
            since: "5m",
            severity: "warning",
            summary: "$program fails",
            runbook: "Look.",
        },
    ];

    #[test]
    fn own_alerts_come_first_and_a_misspelt_series_is_found() {
        let series = Series::new(["konverge_build_info".to_owned(), "tester_failures".to_owned()]);
        let watching = Watching::new("tester", &series).alerts(&OWN).runbooks("https://docs.example/alerts.html");
        assert_eq!(watching.unknown_series(), BTreeSet::from(["tester_failure_total"]));
        let rules = watching.rules();
        let names: Vec<_> = rules.iter().filter_map(|rule| rule["alert"].as_str()).collect();
        assert_eq!(names, ["TesterFails", "OperatorAbsent"]);
        let urls: Vec<_> = rules.iter().filter_map(|rule| rule["annotations"]["runbook_url"].as_str()).collect();
        assert_eq!(
            urls,
            ["https://docs.example/alerts.html#testerfails", "https://docs.example/alerts.html#operatorabsent"]
        );
    }

    #[test]
    fn an_alert_is_silent_where_another_is_about_the_fault() {
        let names = ["konverge_build_info", "konverge_check_status", "tester_failures", "tester_away"];
        let series = Series::new(names.map(str::to_owned));
        let inhibition = |source, expression| Inhibition { source, target: "TesterFails", equal: "job", expression };
        let own = [
            inhibition("OperatorCheckFails", "tester_away > 0"),
            inhibition("TesterMisspelt", "tester_failure_total > 0"),
        ];
        let watching = Watching::new("tester", &series).alerts(&OWN).inhibitions(&own);
        assert_eq!(watching.unknown_alerts(), BTreeSet::from(["TesterMisspelt"]));
        assert_eq!(watching.unknown_series(), BTreeSet::from(["tester_failure_total"]));
        let condition = format!("{} unless on (job) tester_away > 0", OWN[0].expression);
        assert_eq!(watching.condition(&OWN[0]), condition, "without the series that the program lacks");
        let rules = watching.rules();
        assert!(rules[0]["expr"].as_str().unwrap().ends_with(" > 0 unless on (job) tester_away > 0"), "{rules:?}");
    }

    #[test]
    fn failing_runs_are_reported_by_the_check_that_fails() {
        let names = ["konverge_build_info", "konverge_check_status", "controller_runtime_reconcile_errors"];
        for has_checks in [true, false] {
            let names = names.into_iter().filter(|name| has_checks || !name.contains("check"));
            let series = Series::new(names.map(str::to_owned));
            let watching = Watching::new("tester", &series);
            let alert = watching.chosen_alerts().find(|alert| alert.name == "OperatorRunsFail").unwrap();
            let inhibited =
                watching.condition(alert).contains("unless on (namespace, job) (max_over_time(konverge_check_status");
            assert_eq!(inhibited, has_checks);
        }
    }

    #[test]
    fn inhibitions_of_every_program_name_its_alerts() {
        let names: BTreeSet<_> = alerts::ALERTS.iter().map(|alert| alert.name).collect();
        for inhibition in alerts::INHIBITIONS {
            assert!(names.contains(inhibition.source) && names.contains(inhibition.target), "{inhibition:?}");
        }
    }

    #[test]
    fn a_program_without_the_build_info_of_the_framework_is_found_by_its_own() {
        let series = Series::new(["tester_build".to_owned(), "tester_failures".to_owned()]);
        let panels =
            [Panel { title: "Failures", unit: "short", queries: &[("sum (tester_failures_total $mine)", "all")] }];
        let watching =
            Watching::new("tester", &series).alerts(&OWN[..1]).panels(&panels).build_info("tester_build_info");
        let rules = watching.rules();
        assert_eq!(rules.len(), 1, "it has no series of the framework: {rules:?}");
        let mine = "and on (job, instance) tester_build_info)";
        assert_eq!(rules[0]["expr"], format!("sum by (namespace, job) (rate(tester_failures_total[5m]) {mine} > 0"));
        let dashboard = watching.dashboard();
        assert_eq!(dashboard["panels"][0]["targets"][0]["expr"], format!("sum (tester_failures_total {mine}"));
        assert!(series.has("tester_build_info"), "Prometheus adds the ending to an info");
    }

    /// The watchdog ends a program whose run is in flight for three times its time limit, and the kubelet needs some probes to see it.
    #[test]
    fn a_stuck_run_is_reported_before_the_watchdog_ends_the_program() {
        let series =
            Series::new(["konverge_build_info".to_owned(), "workqueue_longest_running_processor_seconds".to_owned()]);
        for limit in [Duration::from_mins(1), TIME_LIMIT, Duration::from_mins(10)] {
            let rules = Watching::new("tester", &series).time_limit(limit).rules();
            let rule = rules.iter().find(|rule| rule["alert"] == "OperatorQueueStuck").unwrap();
            let threshold: u64 = rule["expr"].as_str().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
            let pending: u64 = rule["for"].as_str().unwrap().trim_end_matches('m').parse().unwrap();
            assert!(threshold > limit.as_secs(), "a run that ends at its limit is not stuck");
            assert!(threshold + 60 * pending < limit.as_secs() * 3, "{rule}");
            assert!(
                rule["annotations"]["summary"].as_str().unwrap().contains(&format!("{threshold} seconds")),
                "{rule}"
            );
        }
    }
}

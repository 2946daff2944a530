//! The panels of the dashboard.

use serde_json::{Value, json};

use super::{Watching, expression::Series};

/// A panel of the dashboard. It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone, Copy)]
pub struct Panel {
    /// Its title.
    pub title: &'static str,
    /// A unit of Grafana, such as `s`.
    pub unit: &'static str,
    /// Expressions with their legends. `$mine` stands for the selection of the program's own series.
    pub queries: &'static [(&'static str, &'static str)],
}

/// Grafana's grid has 24 columns; two panels stand side by side.
const WIDTH: usize = 12;
const HEIGHT: usize = 8;

impl Panel {
    pub(super) fn is_of(&self, series: &Series) -> bool {
        self.queries.iter().all(|(expression, _)| series.have(expression))
    }

    pub(super) fn json(&self, number: usize, of: &Watching<'_>) -> Value {
        let source = json!({ "type": "prometheus", "uid": "${datasource}" });
        let letters = ('A'..='Z').map(String::from);
        let targets: Vec<Value> = letters
            .zip(self.queries)
            .map(|(letter, (expression, legend))| {
                json!({
                    "refId": letter,
                    "datasource": source,
                    "expr": of.complete(expression),
                    "legendFormat": legend,
                    "exemplar": expression.contains("_bucket"),
                })
            })
            .collect();
        json!({
            "id": number + 1,
            "type": "timeseries",
            "title": self.title,
            "datasource": source,
            "gridPos": { "x": number % 2 * WIDTH, "y": number / 2 * HEIGHT, "w": WIDTH, "h": HEIGHT },
            "fieldConfig": { "defaults": { "unit": self.unit, "min": 0 }, "overrides": [] },
            "targets": targets,
        })
    }
}

pub(super) const PANELS: &[Panel] = &[
    Panel {
        title: "Runs by result",
        unit: "ops",
        queries: &[(
            "sum by (controller, result) (rate(controller_runtime_reconcile_total[5m]) $mine)",
            "{{controller}} {{result}}",
        )],
    },
    Panel {
        title: "Runs that failed",
        unit: "ops",
        queries: &[(
            "sum by (controller) (rate(controller_runtime_reconcile_errors_total[5m]) $mine)",
            "{{controller}}",
        )],
    },
    Panel {
        title: "Why runs failed",
        unit: "ops",
        queries: &[(
            "sum by (controller, reason) (rate(konverge_reconcile_errors_total[5m]) $mine)",
            "{{controller}} {{reason}}",
        )],
    },
    Panel {
        title: "How long runs take",
        unit: "s",
        queries: &[
            (
                "histogram_quantile(0.5, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket[5m]) $mine))",
                "{{controller}} half",
            ),
            (
                "histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket[5m]) $mine))",
                "{{controller}} 99 of 100",
            ),
        ],
    },
    Panel {
        title: "Objects that wait",
        unit: "short",
        queries: &[("sum by (controller, priority) (workqueue_depth $mine)", "{{controller}} {{priority}}")],
    },
    Panel {
        title: "How long they wait, 99 of 100",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.99, sum by (controller, le) (rate(workqueue_queue_duration_seconds_bucket[5m]) $mine))",
            "{{controller}}",
        )],
    },
    Panel {
        title: "Workers at work",
        unit: "short",
        queries: &[
            ("sum by (controller) (controller_runtime_active_workers $mine)", "{{controller}}"),
            ("sum by (controller) (controller_runtime_max_concurrent_reconciles $mine)", "{{controller}} at most"),
        ],
    },
    Panel {
        title: "Objects that are not ready",
        unit: "short",
        queries: &[
            (
                r#"sum by (controller, type, reason) (konverge_objects_by_condition{type=~"Reconciling|Stalled",status="True"} $mine)"#,
                "{{controller}} {{type}} {{reason}}",
            ),
            ("sum by (controller) (konverge_paused_objects $mine)", "{{controller}} paused"),
        ],
    },
    Panel {
        title: "Objects in the caches",
        unit: "short",
        queries: &[
            ("max by (resource) (konverge_cache_objects $mine)", "{{resource}}"),
            ("max by (resource) (konverge_cache_undecodable_objects $mine)", "{{resource}} undecodable"),
        ],
    },
    Panel {
        title: "Requests to the API server",
        unit: "reqps",
        queries: &[("sum by (method, code) (rate(rest_client_requests_total[5m]) $mine)", "{{method}} {{code}}")],
    },
    Panel {
        title: "How long the API server takes, 99 of 100",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.99, sum by (verb, le) (rate(rest_client_request_duration_seconds_bucket[5m]) $mine))",
            "{{verb}}",
        )],
    },
    Panel {
        title: "Who leads, and which checks fail",
        unit: "short",
        queries: &[
            ("max by (instance, name) (leader_election_master_status $mine)", "{{instance}} leads"),
            ("(konverge_check_status $mine) < 1", "{{instance}} {{check}}"),
        ],
    },
    Panel {
        title: "Calls of webhooks",
        unit: "reqps",
        queries: &[(
            "sum by (webhook, code) (rate(controller_runtime_webhook_requests_total[5m]) $mine)",
            "{{webhook}} {{code}}",
        )],
    },
    Panel {
        title: "Sources outside that fail",
        unit: "ops",
        queries: &[(
            "sum by (source, reason) (rate(konverge_external_errors_total[5m]) $mine)",
            "{{source}} {{reason}}",
        )],
    },
    Panel {
        title: "Writes of items on the server",
        unit: "ops",
        queries: &[(
            "sum by (collection, write) (rate(konverge_remote_writes_total[5m]) $mine)",
            "{{collection}} {{write}}",
        )],
    },
    Panel {
        title: "Drift in 5 minutes",
        unit: "short",
        queries: &[
            ("sum by (collection) (increase(konverge_remote_drift_found_total[5m]) $mine)", "{{collection}} found"),
            (
                "sum by (collection) (increase(konverge_remote_drift_corrected_total[5m]) $mine)",
                "{{collection}} corrected",
            ),
        ],
    },
    Panel {
        title: "Age of the lists of the server",
        unit: "s",
        queries: &[("max by (collection, scope) (konverge_remote_list_age_seconds $mine)", "{{collection}} {{scope}}")],
    },
    Panel {
        title: "Memory",
        unit: "bytes",
        queries: &[("max by (instance) (process_resident_memory_bytes $mine)", "{{instance}}")],
    },
    Panel {
        title: "Processor",
        unit: "percentunit",
        queries: &[("sum by (instance) (rate(process_cpu_seconds_total[5m]) $mine)", "{{instance}}")],
    },
];

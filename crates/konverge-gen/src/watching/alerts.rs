//! The alerts of every program: the condition, its meaning and the next step.

use serde_json::{Value, json};

use super::{Watching, expression::Series};

/// An alert. It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone, Copy)]
pub struct Alert {
    /// Its name, such as `OperatorAbsent`.
    pub name: &'static str,
    /// The condition. `$mine` stands for the selection of the program's own series, `$program` for its name, and `$stuck` for the seconds after which
    /// a run counts as stuck.
    pub expression: &'static str,
    /// How long the condition must hold, such as `10m`.
    pub since: &'static str,
    /// `critical`, `warning` or `info`.
    pub severity: &'static str,
    /// One line that may name labels, such as `{{ $labels.reason }}`.
    pub summary: &'static str,
    /// The meaning and the next step.
    pub runbook: &'static str,
}

impl Alert {
    /// Returns whether the program has all series of the condition.
    #[must_use]
    pub fn is_of(&self, series: &Series) -> bool {
        series.have(self.expression)
    }

    pub(super) fn json(&self, of: &Watching<'_>) -> Value {
        // Half a limit later than a run may take, and well before the watchdog ends the program at three limits.
        let stuck = (of.time_limit + of.time_limit / 2).as_secs().to_string();
        let text = |template: &str| of.complete(template).replace("$stuck", &stuck);
        let mut annotations = json!({ "summary": text(self.summary), "runbook": self.runbook });
        if let Some(page) = of.runbooks {
            annotations["runbook_url"] = format!("{page}#{}", self.name.to_lowercase()).into();
        }
        json!({
            "alert": self.name,
            "expr": text(&of.condition(self)),
            "for": self.since,
            "labels": { "severity": self.severity, "program": of.program },
            "annotations": annotations,
        })
    }
}

/// An alert that does not fire while another one fires for the same fault: the inhibit rule of an Alertmanager, as a part of the alert's own condition.
/// It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone, Copy)]
pub struct Inhibition {
    /// The alert that fires.
    pub source: &'static str,
    /// The alert that does not.
    pub target: &'static str,
    /// The labels that both have in common, such as `namespace, job`.
    pub equal: &'static str,
    /// The expression that has a series while the source is about the fault. It takes the same words with a dollar sign as the condition of an alert.
    pub expression: &'static str,
}

/// The inhibitions of every program: runs fail while something outside is away that a check or a list is about.
pub(super) const INHIBITIONS: &[Inhibition] = &[
    Inhibition {
        source: "OperatorCheckFails",
        target: "OperatorRunsFail",
        equal: "namespace, job",
        expression: A_CHECK_FAILS,
    },
    Inhibition {
        source: "OperatorCheckFails",
        target: "OperatorSourceFails",
        equal: "namespace, job, source",
        expression: r#"label_replace((max_over_time(konverge_check_status{kind!="warning"}[10m]) $mine) < 1, "source", "$1", "check", "(.+)")"#,
    },
    Inhibition {
        source: "OperatorRemoteListOld",
        target: "OperatorRunsFail",
        equal: "namespace, job",
        expression: "(konverge_remote_list_age_seconds $mine) > 600",
    },
];

/// A check has failed for as long as `OperatorCheckFails` waits. A check that comes and goes never fires that alert, so it silences no other.
const A_CHECK_FAILS: &str = r#"(max_over_time(konverge_check_status{kind!="warning"}[10m]) $mine) < 1"#;

pub(super) const ALERTS: &[Alert] = &[
    Alert {
        name: "OperatorAbsent",
        expression: r#"absent(konverge_build_info{program="$program"})"#,
        since: "10m",
        severity: "critical",
        summary: "Prometheus scrapes no replica of $program",
        runbook: "Either no replica runs, or Prometheus does not find them. While none runs, nothing is reconciled, and all objects stay as they are. Look at the pods of the Deployment and at their last log lines, then at the targets of Prometheus.",
    },
    Alert {
        name: "OperatorLeaderMissing",
        expression: "max by (namespace, job, name) (leader_election_master_status $mine) < 1",
        since: "2m",
        severity: "critical",
        summary: "No replica of $program holds the lease {{ $labels.name }}",
        runbook: "All replicas stand by, and none reconciles. Their logs say why they cannot take the lease, such as a missing permission or an API server that does not answer. `kubectl get lease` shows the holder.",
    },
    Alert {
        name: "OperatorCheckFails",
        expression: r#"min by (namespace, job, instance, kind, check) (konverge_check_status{kind!="warning"} $mine) < 1"#,
        since: "10m",
        severity: "warning",
        summary: "The {{ $labels.kind }} check {{ $labels.check }} of $program fails on {{ $labels.instance }}",
        runbook: "A watch, a system outside or a server of the program does not work. `/readyz?verbose` on that replica has the cause: most often a missing definition, a missing permission or a system that is away. The operator recovers by itself once the cause is gone.",
    },
    Alert {
        name: "OperatorWarns",
        expression: r#"min by (namespace, job, instance, check) (konverge_check_status{kind="warning"} $mine) < 1"#,
        since: "30m",
        severity: "warning",
        summary: "The check {{ $labels.check }} of $program has a warning",
        runbook: "The program works, but a person has to act, for example because of an insecure setting or a certificate that expires. `/readyz?verbose` on that replica has the cause.",
    },
    Alert {
        name: "OperatorRunsFail",
        expression: "sum by (namespace, job, controller) (rate(controller_runtime_reconcile_errors_total[10m]) $mine) > 0",
        since: "30m",
        severity: "warning",
        summary: "Reconciliations by {{ $labels.controller }} in $program keep failing",
        runbook: "Some objects are not in the desired state. `konverge_reconcile_errors_total` has the reasons; the events and conditions of the objects show which ones. The operator retries them with growing pauses. While a check of the program fails, OperatorCheckFails fires instead; while a list is old, OperatorRemoteListOld does.",
    },
    Alert {
        name: "OperatorPanics",
        expression: "sum by (namespace, job, controller) (increase(controller_runtime_reconcile_panics_total[30m]) $mine) > 0",
        since: "0m",
        severity: "warning",
        summary: "Reconciliations by {{ $labels.controller }} in $program panic",
        runbook: "This is a bug in the operator. Other objects are not affected. Report the log line with \"panicked\". If the panics do harm, annotate the object with konverge.dev/paused=true.",
    },
    Alert {
        name: "OperatorQueueStuck",
        expression: "max by (namespace, job, controller) (workqueue_longest_running_processor_seconds $mine) > $stuck",
        since: "1m",
        severity: "warning",
        summary: "A reconciliation by {{ $labels.controller }} in $program has taken more than $stuck seconds",
        runbook: "A worker is stuck: a reconciliation that only waits would have ended at its time limit. After three time limits the liveness check fails, and Kubernetes restarts the container. Report the log of that time. With --debug-queues, `/debug/queues` names the object.",
    },
    Alert {
        name: "OperatorQueueGrows",
        expression: "min_over_time((sum by (namespace, job, controller) (workqueue_depth $mine))[30m:1m]) > 100",
        since: "0m",
        severity: "warning",
        summary: "More than 100 objects have waited for a worker of {{ $labels.controller }} in $program for half an hour",
        runbook: "The workers do not keep up. Look at the duration of reconciliations and at the latency of the API server. More workers help if reconciliations wait for other systems.",
    },
    Alert {
        name: "OperatorObjectsStalled",
        expression: r#"sum by (namespace, job, controller, reason) (konverge_objects_by_condition{type="Stalled",status="True"} $mine) > 0"#,
        since: "15m",
        severity: "warning",
        summary: "{{ $value }} objects of {{ $labels.controller }} in $program are stalled, with the reason {{ $labels.reason }}",
        runbook: "A retry does not help: a person has to change the objects, or the objects that they refer to. Their condition Stalled says what is wrong.",
    },
    Alert {
        name: "OperatorObjectsPaused",
        expression: "sum by (namespace, job, controller) (konverge_paused_objects $mine) > 0",
        since: "24h",
        severity: "info",
        summary: "{{ $value }} objects of {{ $labels.controller }} in $program have been paused for a day",
        runbook: "The operator leaves these objects alone, because they have the annotation konverge.dev/paused. Remove the annotation if nobody knows why it is there.",
    },
    Alert {
        name: "OperatorObjectsUndecodable",
        expression: "sum by (namespace, job, resource) (konverge_cache_undecodable_objects $mine) > 0",
        since: "15m",
        severity: "warning",
        summary: "$program cannot decode {{ $value }} objects of {{ $labels.resource }}",
        runbook: "The program and the definition have different versions, or an object was stored before its schema existed. The log names the objects. The operator leaves them alone until it can decode them.",
    },
    Alert {
        name: "OperatorApiRequestsFail",
        expression: r#"sum by (namespace, job, code) (rate(rest_client_requests_total{code=~"5..|429|403|<error>"}[10m]) $mine) > 0.1"#,
        since: "15m",
        severity: "warning",
        summary: "Requests of $program to the API server fail with the code {{ $labels.code }}",
        runbook: "403: the role lacks a permission; apply the generated role again. 429: a client sends too many requests, perhaps another one. 5xx or <error>: the API server, or the network to it, fails.",
    },
    Alert {
        name: "OperatorWebhooksFail",
        expression: r#"sum by (namespace, job, webhook) (rate(controller_runtime_webhook_requests_total{code=~"5.."}[10m]) $mine) > 0"#,
        since: "10m",
        severity: "critical",
        summary: "Calls of the webhook {{ $labels.webhook }} of $program fail",
        runbook: "The failure policy of the webhook decides: the API server refuses requests that create or change its objects, or lets them pass unchecked. The log has the cause.",
    },
    Alert {
        name: "OperatorWebhookCertificateEnds",
        expression: "min by (namespace, job, instance) (konverge_webhook_certificate_expiry_timestamp_seconds $mine) - time() < 86400",
        since: "10m",
        severity: "critical",
        summary: "The certificate of the webhooks of $program expires within a day on {{ $labels.instance }}",
        runbook: "The program renews a certificate that it has made itself; its log says what prevents that. Replace the files of any other certificate.",
    },
    Alert {
        name: "OperatorSourceFails",
        expression: "sum by (namespace, job, source) (rate(konverge_external_errors_total[10m]) $mine) > 0",
        since: "30m",
        severity: "warning",
        summary: "The source {{ $labels.source }} of $program keeps failing",
        runbook: "The program does not notice changes outside, and keeps to the last known state. The label reason of konverge_external_errors_total has the cause, and `/readyz?verbose` its text. While the readiness check of the source fails, OperatorCheckFails fires instead.",
    },
    Alert {
        name: "OperatorRemoteListOld",
        expression: "max by (namespace, job, collection, scope) (konverge_remote_list_age_seconds $mine) > 600",
        since: "5m",
        severity: "warning",
        summary: "$program has not been able to list the collection {{ $labels.collection }} for {{ $value }} seconds",
        runbook: "The server is away or refuses the credential. Objects keep their items, and changes on the server are not noticed. The conditions of the objects and the log have the cause. Raise the threshold if the interval is longer than 200 seconds. Where the program has an alert of its own about the server, that one fires instead.",
    },
    Alert {
        name: "OperatorRemoteDrift",
        expression: "sum by (namespace, job, collection) (increase(konverge_remote_drift_found_total[1h]) $mine) > 5",
        since: "0m",
        severity: "info",
        summary: "Another client changed items of the collection {{ $labels.collection }} {{ $value }} times in an hour",
        runbook: "The operator corrects the items. The events of the objects name the fields, and the audit log of the server names the client. Two operators for one item are a common cause.",
    },
];

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
            "expr": text(self.expression),
            "for": self.since,
            "labels": { "severity": self.severity, "program": of.program },
            "annotations": annotations,
        })
    }
}

pub(super) const ALERTS: &[Alert] = &[
    Alert {
        name: "OperatorAbsent",
        expression: r#"absent(konverge_build_info{program="$program"})"#,
        since: "10m",
        severity: "critical",
        summary: "No replica of $program is scraped",
        runbook: "Nothing is reconciled; what is in the cluster stays as it is. Look at the pods of the deployment and at their last log lines, and at whether Prometheus finds them.",
    },
    Alert {
        name: "OperatorLeaderMissing",
        expression: "max by (namespace, job, name) (leader_election_master_status $mine) < 1",
        since: "2m",
        severity: "critical",
        summary: "No replica of $program holds the lease {{ $labels.name }}",
        runbook: "Replicas stand by and nobody works. Look at the log for why the lease cannot be taken (permission, API server), and at the holder in `kubectl get lease`.",
    },
    Alert {
        name: "OperatorCheckFails",
        expression: r#"min by (namespace, job, instance, kind, check) (konverge_check_status{kind!="warning"} $mine) < 1"#,
        since: "10m",
        severity: "warning",
        summary: "The {{ $labels.kind }} check {{ $labels.check }} of $program fails on {{ $labels.instance }}",
        runbook: "A watch, a source outside or a server of the program does not work. `/readyz?verbose` on that replica says why; most causes are a missing definition, a missing permission or a system that is away, and it recovers by itself.",
    },
    Alert {
        name: "OperatorWarns",
        expression: r#"min by (namespace, job, instance, check) (konverge_check_status{kind="warning"} $mine) < 1"#,
        since: "30m",
        severity: "warning",
        summary: "The check {{ $labels.check }} of $program warns",
        runbook: "The program works, but needs attention, such as for an insecure setting or a certificate that ends. `/readyz?verbose` on that replica has the cause.",
    },
    Alert {
        name: "OperatorRunsFail",
        expression: "sum by (namespace, job, controller) (rate(controller_runtime_reconcile_errors_total[10m]) $mine) > 0",
        since: "30m",
        severity: "warning",
        summary: "Runs of {{ $labels.controller }} in $program keep failing",
        runbook: "Some objects are not as they should be. `konverge_reconcile_errors_total` by reason tells why, and the events and conditions of the objects tell which. They are tried again with growing pauses.",
    },
    Alert {
        name: "OperatorPanics",
        expression: "sum by (namespace, job, controller) (increase(controller_runtime_reconcile_panics_total[30m]) $mine) > 0",
        since: "0m",
        severity: "warning",
        summary: "Runs of {{ $labels.controller }} in $program panic",
        runbook: "A bug in the operator. Only the objects concerned suffer. Report the log line with \"panicked\"; annotate the object with konverge.dev/paused=true if it does harm.",
    },
    Alert {
        name: "OperatorQueueStuck",
        expression: "max by (namespace, job, controller) (workqueue_longest_running_processor_seconds $mine) > $stuck",
        since: "1m",
        severity: "warning",
        summary: "A run of {{ $labels.controller }} in $program has been in flight for more than $stuck seconds",
        runbook: "A worker is stuck: a run that waits would have ended at its time limit. The liveness check fails at three time limits, and Kubernetes restarts the container. Report the log of that time; where the program has --debug-queues, `/debug/queues` names the object.",
    },
    Alert {
        name: "OperatorQueueGrows",
        expression: "min_over_time((sum by (namespace, job, controller) (workqueue_depth $mine))[30m:1m]) > 100",
        since: "0m",
        severity: "warning",
        summary: "More than 100 objects have waited for {{ $labels.controller }} of $program for half an hour",
        runbook: "Workers do not keep up. Look at how long runs take and at the answers of the API server; more workers help where runs wait for others.",
    },
    Alert {
        name: "OperatorObjectsStalled",
        expression: r#"sum by (namespace, job, controller, reason) (konverge_objects_by_condition{type="Stalled",status="True"} $mine) > 0"#,
        since: "15m",
        severity: "warning",
        summary: "{{ $value }} objects of {{ $labels.controller }} in $program are stalled: {{ $labels.reason }}",
        runbook: "Trying again will not help: somebody has to change the objects, or what they refer to. Their condition Stalled says what is wrong.",
    },
    Alert {
        name: "OperatorObjectsPaused",
        expression: "sum by (namespace, job, controller) (konverge_paused_objects $mine) > 0",
        since: "24h",
        severity: "info",
        summary: "{{ $value }} objects of {{ $labels.controller }} in $program have been paused for a day",
        runbook: "Nothing is done for them on purpose. Take the annotation konverge.dev/paused away if nobody knows why it is there.",
    },
    Alert {
        name: "OperatorObjectsUndecodable",
        expression: "sum by (namespace, job, resource) (konverge_cache_undecodable_objects $mine) > 0",
        since: "15m",
        severity: "warning",
        summary: "{{ $value }} objects of {{ $labels.resource }} are not what $program takes them for",
        runbook: "Program and definition differ, or an object was stored before a schema was made. The log names the objects; they are left alone until they can be read.",
    },
    Alert {
        name: "OperatorApiRequestsFail",
        expression: r#"sum by (namespace, job, code) (rate(rest_client_requests_total{code=~"5..|429|403|<error>"}[10m]) $mine) > 0.1"#,
        since: "15m",
        severity: "warning",
        summary: "The API server answers $program with {{ $labels.code }}",
        runbook: "403: the role lacks a permission; apply the generated role again. 429: some client sends too many requests. 5xx or <error>: the API server, or the network to it, fails.",
    },
    Alert {
        name: "OperatorWebhooksFail",
        expression: r#"sum by (namespace, job, webhook) (rate(controller_runtime_webhook_requests_total{code=~"5.."}[10m]) $mine) > 0"#,
        since: "10m",
        severity: "critical",
        summary: "The webhook {{ $labels.webhook }} of $program fails",
        runbook: "Requests that create or change such objects are refused, or are not checked, as the failure policy says. The log has the cause.",
    },
    Alert {
        name: "OperatorWebhookCertificateEnds",
        expression: "min by (namespace, job, instance) (konverge_webhook_certificate_expiry_timestamp_seconds $mine) - time() < 86400",
        since: "10m",
        severity: "critical",
        summary: "The certificate of the webhooks of $program ends within a day on {{ $labels.instance }}",
        runbook: "It is renewed by itself where it is self-made; then the log says what prevents it. Otherwise replace the files.",
    },
    Alert {
        name: "OperatorSourceFails",
        expression: "sum by (namespace, job, source) (rate(konverge_external_errors_total[10m]) $mine) > 0",
        since: "30m",
        severity: "warning",
        summary: "The source {{ $labels.source }} of $program keeps failing",
        runbook: "The program does not notice changes outside; the last known state stays in force. The reason is a label of konverge_external_errors_total, and /readyz?verbose has the text.",
    },
    Alert {
        name: "OperatorRemoteListOld",
        expression: "max by (namespace, job, collection, scope) (konverge_remote_list_age_seconds $mine) > 600",
        since: "5m",
        severity: "warning",
        summary: "$program has not read the list of each {{ $labels.collection }} for {{ $value }} seconds",
        runbook: "The server is away or refuses the credential. Objects keep their items, and changes on the server are not noticed. The conditions of the objects and the log have the cause. Raise the threshold if the interval is longer than 200 seconds.",
    },
    Alert {
        name: "OperatorRemoteDrift",
        expression: "sum by (namespace, job, collection) (increase(konverge_remote_drift_found_total[1h]) $mine) > 5",
        since: "0m",
        severity: "info",
        summary: "Another client changed each {{ $labels.collection }} of objects {{ $value }} times in an hour",
        runbook: "$program corrects the items. The events of the objects name the fields, and the audit log of the server the client; two operators for one item are a common cause.",
    },
];

//! The alerts and panels of each job and of the zopp server, beside those of every operator.

use std::time::Duration;

use konverge_gen::{
    reference,
    watching::{self, Alert, Inhibition, Panel, Series, Watching},
};
use konverge_zopp_server::metrics as zopp_server;
use prometheus_client::registry::Registry;

/// A program of the chart, and what Prometheus and Grafana are told of it.
pub(crate) struct Watched {
    /// The name of its part in the chart.
    pub(crate) job: &'static str,
    pub(crate) program: &'static str,
    metrics: Metrics,
    alerts: &'static [Alert],
    inhibitions: &'static [Inhibition],
    panels: &'static [Panel],
}

/// The series of a program.
enum Metrics {
    /// The job's own, beside those of every operator.
    Operator {
        register: fn(&mut Registry),
        /// The time limit of its longest runs.
        time_limit: Duration,
    },
    /// Those of the zopp server, and no others.
    ZoppServer,
}

/// Stands in the rules of the chart for the address of the docs.
pub(crate) const RUNBOOKS: &str = "RUNBOOK_BASE_URL/docs/reference/alerts.html";

/// All jobs.
pub(crate) const JOBS: [Watched; 3] = [
    Watched {
        job: "pull",
        program: "zopp-operator",
        metrics: Metrics::Operator {
            register: |registry| konverge_pull::metrics::Metrics::new(registry).synced("changed"),
            time_limit: Duration::from_mins(1),
        },
        alerts: PULL_ALERTS,
        inhibitions: PULL_INHIBITIONS,
        panels: PULL_PANELS,
    },
    Watched {
        job: "push",
        program: "vault-sync-operator",
        metrics: Metrics::Operator {
            register: |registry| register_push(&konverge_push::metrics::Metrics::new(registry)),
            time_limit: Duration::from_mins(10),
        },
        alerts: PUSH_ALERTS,
        inhibitions: PUSH_INHIBITIONS,
        panels: PUSH_PANELS,
    },
    Watched {
        job: "roll",
        program: "vault-rollout-operator",
        metrics: Metrics::Operator {
            register: |registry| {
                let metrics = konverge_roll::metrics::Metrics::new(registry);
                metrics.rolled(
                    konverge_workload::WorkloadKind::Deployment,
                    konverge_roll::metrics::RolloutResult::Patched,
                );
                metrics.held("reason");
                metrics.unread("reason");
            },
            time_limit: Duration::from_mins(1),
        },
        alerts: ROLL_ALERTS,
        inhibitions: ROLL_INHIBITIONS,
        panels: ROLL_PANELS,
    },
];

/// The zopp server.
pub(crate) const SERVER: Watched = Watched {
    job: "server",
    program: "zopp-server",
    metrics: Metrics::ZoppServer,
    alerts: SERVER_ALERTS,
    inhibitions: &[],
    panels: SERVER_PANELS,
};

/// Gives each family of series a value, so that its type is known.
fn register_push(metrics: &konverge_push::metrics::Metrics) {
    use konverge_push::{
        object::{Kind, ObjectRef},
        spec::Invalid,
    };

    let web = ObjectRef { kind: Kind::Deployment, namespace: "a".to_owned(), name: "web".to_owned() };
    metrics.attempted(&web, true, Duration::ZERO);
    metrics.discovered(&web, 1);
    metrics.secret_not_found("a", "db");
    metrics.key_missing("a", "db", "k");
    metrics.parse_failed(&web, &Invalid::Spec { cause: String::new() });
    metrics.write_failed(&konverge_vault::VaultError::NoMount { what: String::new() }, "x");
    metrics.logins(konverge_vault::LoginCounts { succeeded: 1, failed: 1, renewed: 1 });
    metrics.runtime(&konverge_push::runtime_info::RuntimeInfo::default(), 1);
    metrics.reasons().moved(None, Some("Synced"));
}

impl Watched {
    /// Returns the series of the program.
    pub(crate) fn series(&self) -> Series {
        match self.metrics {
            Metrics::Operator { register, .. } => self.of_operator(|registry| {
                register(registry);
                konverge_apply::events::EventSink::describe(registry);
                watching::series(registry)
            }),
            Metrics::ZoppServer => zopp_server::described(watching::series),
        }
    }

    /// Returns the table of the metrics that not every operator has.
    pub(crate) fn own_metrics(&self) -> String {
        match self.metrics {
            Metrics::Operator { register, .. } => {
                let mut registry = Registry::default();
                register(&mut registry);
                reference::metrics(&registry)
            }
            Metrics::ZoppServer => zopp_server::described(reference::metrics),
        }
    }

    /// Returns the table of the metrics that every operator has.
    pub(crate) fn common_metrics(&self) -> String {
        self.of_operator(|registry| reference::metrics(registry))
    }

    fn of_operator<T>(&self, read: impl FnOnce(&mut Registry) -> T) -> T {
        konverge_runtime::Metrics::new(self.program, konverge_version::VERSION).register(read)
    }

    /// Returns the alerts and panels of the program, or the series that they name and that it does not have.
    pub(crate) fn watching<'a>(&'a self, series: &'a Series) -> Result<Watching<'a>, String> {
        let watching = Watching::new(self.program, series)
            .alerts(self.alerts)
            .inhibitions(self.inhibitions)
            .panels(self.panels)
            .runbooks(RUNBOOKS);
        let watching = match self.metrics {
            Metrics::Operator { time_limit, .. } => watching.time_limit(time_limit),
            Metrics::ZoppServer => watching.build_info("zopp_server_build_info"),
        };
        let unknown: Vec<_> = watching.unknown_series().into_iter().chain(watching.unknown_alerts()).collect();
        if unknown.is_empty() { Ok(watching) } else { Err(format!("{} has no {unknown:?}", self.program)) }
    }
}

// An alert and the inhibition of which it is the source are about the same objects. A literal is what `concat!` takes.
macro_rules! pull_out_of_sync {
    () => {
        r#"(konverge_pull_bindings{reason!~"Synced|ServerUnreachable"} $mine) > 0"#
    };
}

macro_rules! push_out_of_sync {
    () => {
        r#"(konverge_push_bindings{reason!~"Synced|Paused|LeftAlone|Adopted|DriftCorrected|ValuesEncoded|OwnerNotMarked|AnnotationAdjusted|VaultSealed|VaultTimeout|VaultUnreachable|VaultUnavailable"} $mine) > 0"#
    };
}

macro_rules! push_writes_fail {
    () => {
        "(rate(vault_sync_operator_vault_write_errors_total[10m]) $mine) > 0"
    };
}

/// A sum, with the label of a controller.
macro_rules! of_controller {
    ($controller:literal, $summed:expr) => {
        concat!(
            "label_replace(sum by (namespace, job) ",
            $summed,
            ", \"controller\", \"",
            $controller,
            "\", \"\", \"\")"
        )
    };
}

/// One outage fires one alert.
const PULL_INHIBITIONS: &[Inhibition] = &[
    Inhibition {
        source: "OperatorCheckFails",
        target: "PullSourceSilent",
        equal: "namespace, job, instance",
        expression: r#"konverge_check_status{check="zopp-server"} < 1"#,
    },
    Inhibition {
        source: "PullSecretsOutOfSync",
        target: "OperatorRunsFail",
        equal: "namespace, job, controller",
        expression: of_controller!("pull", pull_out_of_sync!()),
    },
];

const PULL_ALERTS: &[Alert] = &[
    Alert {
        name: "PullSecretsOutOfSync",
        expression: concat!("sum by (namespace, job, reason) ", pull_out_of_sync!()),
        since: "15m",
        severity: "warning",
        summary: "{{ $value }} Secrets are out of sync with zopp, with the reason {{ $labels.reason }}",
        runbook: "The Secrets keep their last content. The page of reasons has the cause and the next step; `kubectl konverge status secrets -A` lists the Secrets. Secrets whose server does not answer do not count: OperatorCheckFails and PullSourceSilent are about the server.",
    },
    Alert {
        name: "PullSourceSilent",
        expression: "max by (namespace, job, instance) (konverge_pull_stalest_seconds $mine) > 300",
        since: "5m",
        severity: "warning",
        summary: "{{ $labels.instance }} has had no answer about an environment from the zopp server for {{ $value }} seconds",
        runbook: "The server answers its health check, but changes of that environment do not arrive. Look at the logs of the operator and of the zopp server, and at proxies between them. If the server does not answer at all, OperatorCheckFails fires instead, for the check zopp-server. Raise the threshold if --poll-interval is longer than 100 seconds.",
    },
    Alert {
        name: "PullSlow",
        expression: "histogram_quantile(0.99, sum by (namespace, job, le) (rate(konverge_pull_propagation_seconds_bucket[30m]) $mine)) > 1",
        since: "30m",
        severity: "warning",
        summary: "The slowest changes take {{ $value }} seconds from zopp to their Secret",
        runbook: "Look at the latency of the API server and of the zopp server, and at the work queue. More --workers help where runs wait for the API server.",
    },
    Alert {
        name: "PullMissesEvents",
        expression: "sum by (namespace, job) (rate(konverge_pull_missed_events_total[1h]) $mine) > 0",
        since: "1h",
        severity: "info",
        summary: "Polls of the zopp server find changes that no stream reported",
        runbook: "Changes arrive late, with the next poll, because streams break on the way. Look at proxies with an idle timeout, and at the event backend of the zopp server.",
    },
];

const PULL_PANELS: &[Panel] = &[
    Panel {
        title: "Secrets by state",
        unit: "short",
        queries: &[("sum by (reason) (konverge_pull_bindings $mine)", "{{reason}}")],
    },
    Panel {
        title: "From zopp to the Secret",
        unit: "s",
        queries: &[
            ("histogram_quantile(0.5, sum by (le) (rate(konverge_pull_propagation_seconds_bucket[5m]) $mine))", "half"),
            (
                "histogram_quantile(0.99, sum by (le) (rate(konverge_pull_propagation_seconds_bucket[5m]) $mine))",
                "99 of 100",
            ),
        ],
    },
    Panel {
        title: "Runs by result",
        unit: "ops",
        queries: &[("sum by (result) (rate(konverge_pull_syncs_total[5m]) $mine)", "{{result}}")],
    },
    Panel {
        title: "Streams",
        unit: "short",
        queries: &[
            ("sum (konverge_pull_streams $mine)", "open"),
            ("sum (increase(konverge_pull_stream_ends_total[5m]) $mine)", "ended in 5 minutes"),
            ("sum (increase(konverge_pull_missed_events_total[5m]) $mine)", "changes missed in 5 minutes"),
        ],
    },
    Panel {
        title: "Oldest answer about an environment",
        unit: "s",
        queries: &[("max by (instance) (konverge_pull_stalest_seconds $mine)", "{{instance}}")],
    },
];

/// One outage fires one alert. The check fails while Vault does not serve, and while it accepts no login and the last token has expired.
const PUSH_INHIBITIONS: &[Inhibition] = &[
    away("PushObjectsOutOfSync"),
    away("PushLoginFails"),
    away("PushWritesFail"),
    away("PushDeletionsFail"),
    Inhibition {
        source: "PushObjectsOutOfSync",
        target: "OperatorRunsFail",
        equal: "namespace, job, controller",
        expression: of_controller!("push", push_out_of_sync!()),
    },
    Inhibition {
        source: "PushWritesFail",
        target: "OperatorRunsFail",
        equal: "namespace, job, controller",
        expression: of_controller!("push", push_writes_fail!()),
    },
];

const fn away(target: &'static str) -> Inhibition {
    let expression = r#"min by (namespace, job) (max_over_time(konverge_check_status{check="vault",kind="readiness"}[10m]) $mine) < 1"#;
    Inhibition { source: "OperatorCheckFails", target, equal: "namespace, job", expression }
}

const PUSH_ALERTS: &[Alert] = &[
    Alert {
        name: "PushObjectsOutOfSync",
        expression: concat!("sum by (namespace, job, reason) ", push_out_of_sync!()),
        since: "15m",
        severity: "warning",
        summary: "{{ $value }} objects are out of sync with Vault, with the reason {{ $labels.reason }}",
        runbook: "Vault keeps the last content. The page of reasons has the cause and the next step; `kubectl konverge status -A` lists the objects. Objects that wait for Vault do not count: PushWritesFail is about them. While Vault does not serve or accepts no login, OperatorCheckFails fires instead, for the check vault.",
    },
    Alert {
        name: "PushLoginFails",
        expression: r#"sum by (namespace, job) (increase(vault_sync_operator_auth_attempts_total{result="failed"}[15m]) $mine) > 0"#,
        since: "15m",
        severity: "critical",
        summary: "vault-sync-operator cannot replace its Vault token: the login fails",
        runbook: "The operator works until its token expires. Check the role in Vault, the service account that it is bound to, and whether Vault may create tokenreviews. Once the token has expired, OperatorCheckFails fires instead, for the check vault.",
    },
    Alert {
        name: "PushWritesFail",
        expression: concat!("sum by (namespace, job) ", push_writes_fail!()),
        since: "15m",
        severity: "warning",
        summary: "Writes to Vault fail",
        runbook: "Vault keeps the last content, and the operator retries. The label error_type of vault_sync_operator_vault_write_errors_total has the cause. While Vault does not serve or accepts no login, OperatorCheckFails fires instead, for the check vault.",
    },
    Alert {
        name: "PushDeletionsFail",
        expression: "sum by (namespace, job) (rate(konverge_push_vault_delete_errors_total[10m]) $mine) > 0",
        since: "30m",
        severity: "warning",
        summary: "Deletions in Vault fail",
        runbook: "Content that nobody requests stays in Vault. The most common cause is a policy in Vault without the capability delete, or without the one that the deletion policy needs.",
    },
    Alert {
        name: "PushOrphans",
        expression: "max by (namespace, job) (konverge_push_orphans $mine) > 0",
        since: "1h",
        severity: "warning",
        summary: "{{ $value }} deleted objects have left content in Vault",
        runbook: "The ConfigMap vault-sync-operator-orphans lists the paths. The operator clears them when Vault allows it.",
    },
    Alert {
        name: "PushDeletionsStopped",
        expression: "max by (namespace, job) (konverge_push_deletions_stopped $mine) > 0",
        since: "0m",
        severity: "warning",
        summary: "{{ $value }} deletions in Vault wait for an approval",
        runbook: "Too much content is no longer requested, so its deletion needs approval. If that is a mistake, restore the requests: the content is still in Vault. If it is intended, run kubectl konverge approve.",
    },
    Alert {
        name: "PushDrift",
        expression: "sum by (namespace, job) (increase(konverge_push_drift_total[1h]) $mine) > 5",
        since: "0m",
        severity: "info",
        summary: "Another client changed content in Vault {{ $value }} times in an hour",
        runbook: "The operator restores the content each time. Vault's audit log names the client; two clusters on one engine of version 1 are a common cause.",
    },
    Alert {
        name: "PushSlow",
        expression: "histogram_quantile(0.99, sum by (namespace, job, le) (rate(konverge_push_propagation_seconds_bucket[30m]) $mine)) > 2",
        since: "30m",
        severity: "warning",
        summary: "The slowest changes take {{ $value }} seconds from their Secret to Vault",
        runbook: "Look at the latency of Vault and its quotas, and at the work queue. More --workers and a higher --vault-rate help where Vault has room.",
    },
];

const PUSH_PANELS: &[Panel] = &[
    Panel {
        title: "Objects by state",
        unit: "short",
        queries: &[("sum by (reason) (konverge_push_bindings $mine)", "{{reason}}")],
    },
    Panel {
        title: "From the Secret to Vault",
        unit: "s",
        queries: &[
            ("histogram_quantile(0.5, sum by (le) (rate(konverge_push_propagation_seconds_bucket[5m]) $mine))", "half"),
            (
                "histogram_quantile(0.99, sum by (le) (rate(konverge_push_propagation_seconds_bucket[5m]) $mine))",
                "99 of 100",
            ),
        ],
    },
    Panel {
        title: "Requests to Vault",
        unit: "reqps",
        queries: &[
            ("sum (rate(konverge_push_vault_reads_total[5m]) $mine)", "reads"),
            ("sum (rate(konverge_push_vault_writes_total[5m]) $mine)", "writes"),
            ("sum (rate(konverge_push_vault_deletes_total[5m]) $mine)", "deletions"),
        ],
    },
    Panel {
        title: "Failures",
        unit: "ops",
        queries: &[
            ("sum (rate(vault_sync_operator_vault_write_errors_total[5m]) $mine)", "writes"),
            ("sum (rate(konverge_push_vault_delete_errors_total[5m]) $mine)", "deletions"),
            (r#"sum (rate(vault_sync_operator_auth_attempts_total{result="failed"}[5m]) $mine)"#, "logins"),
            ("sum (rate(konverge_push_conflicts_total[5m]) $mine)", "conflicts"),
        ],
    },
    Panel {
        title: "Drift, adoptions and orphans",
        unit: "short",
        queries: &[
            ("sum (increase(konverge_push_drift_total[5m]) $mine)", "drift in 5 minutes"),
            ("sum (increase(konverge_push_adoptions_total[5m]) $mine)", "adoptions in 5 minutes"),
            ("max (konverge_push_orphans $mine)", "orphans"),
        ],
    },
    Panel {
        title: "Oldest comparison of an object with an interval",
        unit: "s",
        queries: &[("max (konverge_push_oldest_look_seconds $mine)", "age")],
    },
];

/// One outage fires one alert. The check warns of a login that Vault does not accept.
const ROLL_INHIBITIONS: &[Inhibition] = &[Inhibition {
    source: "RollVaultFails",
    target: "OperatorWarns",
    equal: "namespace, job, check",
    expression: r#"label_replace((konverge_roll_vault_failing $mine) > 0, "check", "vault", "", "")"#,
}];

const ROLL_ALERTS: &[Alert] = &[
    Alert {
        name: "RollWaitsLong",
        expression: "max by (namespace, job) (konverge_roll_oldest_pending_seconds $mine) > 3600",
        since: "5m",
        severity: "warning",
        summary: "A workload has waited {{ $value }} seconds for its rollout",
        runbook: "`kubectl konverge status -A` and `why` name the workload and the cause: a pause, a halted wave, the budget, or a source that changes too often.",
    },
    Alert {
        name: "RollPatchesFail",
        expression: r#"sum by (namespace, job, kind) (increase(konverge_roll_rollouts_total{result="refused"}[15m]) $mine) > 0"#,
        since: "15m",
        severity: "warning",
        summary: "roll cannot restart workloads of the kind {{ $labels.kind }}",
        runbook: "An admission webhook or a policy refuses the change, or the role lacks a permission. The event WorkloadNotWritable on the workload has the response of the API server.",
    },
    Alert {
        name: "RollFailed",
        expression: "max by (namespace, job) (konverge_roll_failed_workloads $mine) > 0",
        since: "0m",
        severity: "warning",
        summary: "The pods of {{ $value }} workloads do not become available after a restart by roll",
        runbook: "`kubectl konverge status -A` names them with the state RolloutFailed, and the event RolloutFailed names the content. Look at their pods. Other workloads that wait for the same content are held back until these recover or the content changes again.",
    },
    Alert {
        name: "RollSourceRunsAway",
        expression: "max by (namespace, job) (konverge_roll_runaway_sources $mine) > 0",
        since: "10m",
        severity: "warning",
        summary: "{{ $value }} sources change so often that roll restarts nothing for them",
        runbook: "The event RunawaySource is on the Secret or ConfigMap, or, for a secret in Vault, on the objects that name it. Find the client that keeps writing the source.",
    },
    Alert {
        name: "RollVaultFails",
        expression: "max by (namespace, job) (konverge_roll_vault_failing $mine) > 0",
        since: "15m",
        severity: "warning",
        summary: "roll cannot read {{ $value }} secrets in Vault",
        runbook: "roll does not notice changes of these secrets. The condition Ready of the VaultRollout or the VaultSyncStatus has the cause.",
    },
    Alert {
        name: "RollReadsFail",
        expression: "sum by (namespace, job, reason) (rate(konverge_roll_failed_checks_total[10m]) $mine) > 0",
        since: "15m",
        severity: "warning",
        summary: "roll cannot read Secrets or ConfigMaps, with the reason {{ $labels.reason }}",
        runbook: "Workloads do not restart for these sources. For Forbidden, apply the role again; the event SourceForbidden on the workload names the source.",
    },
];

const ROLL_PANELS: &[Panel] = &[
    Panel {
        title: "Rollouts",
        unit: "ops",
        queries: &[("sum by (kind, result) (rate(konverge_roll_rollouts_total[5m]) $mine)", "{{kind}} {{result}}")],
    },
    Panel {
        title: "From the change to the rollout",
        unit: "s",
        queries: &[
            ("histogram_quantile(0.5, sum by (le) (rate(konverge_roll_delay_seconds_bucket[5m]) $mine))", "half"),
            ("histogram_quantile(0.99, sum by (le) (rate(konverge_roll_delay_seconds_bucket[5m]) $mine))", "99 of 100"),
        ],
    },
    Panel { title: "Workloads that wait", unit: "short", queries: &[("max (konverge_roll_pending $mine)", "waiting")] },
    Panel {
        title: "Why rollouts wait",
        unit: "ops",
        queries: &[("sum by (reason) (rate(konverge_roll_suppressed_total[5m]) $mine)", "{{reason}}")],
    },
    Panel {
        title: "Opted-in workloads, sources and triggers",
        unit: "short",
        queries: &[
            ("max (konverge_roll_workloads $mine)", "workloads"),
            ("max (konverge_roll_sources $mine)", "sources"),
            ("max (konverge_roll_triggers $mine)", "triggers"),
            ("max (konverge_roll_runaway_sources $mine)", "runaway sources"),
        ],
    },
    Panel {
        title: "Vault",
        unit: "short",
        queries: &[
            ("sum (rate(konverge_roll_vault_questions_total[5m]) $mine)", "requests per second"),
            ("max (konverge_roll_vault_failing $mine)", "secrets without an answer"),
        ],
    },
];

const SERVER_ALERTS: &[Alert] = &[
    Alert {
        name: "ZoppServerAbsent",
        expression: "absent(zopp_server_build_info)",
        since: "10m",
        severity: "critical",
        summary: "Prometheus scrapes no replica of $program",
        runbook: "Either no replica runs, or Prometheus does not find them. While none runs, nobody can read or change secrets, and the Secrets in the cluster keep their content. Look at the pods of the server and at their last log lines, then at the targets of Prometheus.",
    },
    Alert {
        name: "ZoppServerCallsFail",
        expression: r#"sum by (namespace, job, code) (rate(zopp_server_requests_total{code=~"Unavailable|Internal|Unknown|DataLoss"}[10m]) $mine) > 0"#,
        since: "15m",
        severity: "critical",
        summary: "Calls to $program fail with the code {{ $labels.code }}",
        runbook: "Unavailable: the server cannot reach its database, or the database takes no changes, for example because its disk is full. `/readyz?verbose` has the cause; reads may still work. For any other code, the log of the server has the cause.",
    },
    Alert {
        name: "ZoppServerSlow",
        expression: "histogram_quantile(0.99, sum by (namespace, job, le) (rate(zopp_server_request_seconds_bucket[30m]) $mine)) > 1",
        since: "30m",
        severity: "warning",
        summary: "The slowest calls to $program take {{ $value }} seconds",
        runbook: "Look at the latency of the database, at the processor and at the memory of the server. The dashboard shows which calls are slow.",
    },
    Alert {
        name: "ZoppServerLimitsReached",
        expression: "sum by (namespace, job, limit) (rate(zopp_server_limits_reached_total[10m]) $mine) > 0",
        since: "30m",
        severity: "warning",
        summary: "$program refuses calls, because clients exceed the limit {{ $labels.limit }}",
        runbook: "A client calls too often, or the limit is too low for your clients. The audit log and the log of the proxy before the server show the client. The page on the security of zopp has each limit and its flag.",
    },
    Alert {
        name: "ZoppServerConnectionsRefused",
        expression: "sum by (namespace, job, limit) (rate(zopp_server_connections_refused_total[10m]) $mine) > 0",
        since: "15m",
        severity: "warning",
        summary: "$program closes new connections, because clients exceed the limit {{ $labels.limit }}",
        runbook: "Some clients cannot connect. If all clients share one address, as behind a proxy or a NAT gateway, raise --max-connections-per-address. Otherwise find the client that opens so many connections.",
    },
    Alert {
        name: "ZoppServerAnswersNotTaken",
        expression: "sum by (namespace, job) (increase(zopp_server_answers_not_taken_total[1h]) $mine) > 5",
        since: "0m",
        severity: "info",
        summary: "Clients did not read {{ $value }} responses of $program in an hour",
        runbook: "The server closed the connections of these clients, so that unread responses do not fill its memory. A client hangs, or the network to it is too slow.",
    },
    Alert {
        name: "ZoppServerAuditRowsLost",
        expression: "sum by (namespace, job) (increase(zopp_server_audit_rows_lost_total[15m]) $mine) > 0",
        since: "0m",
        severity: "critical",
        summary: "$program lost {{ $value }} rows of the audit log",
        runbook: "The database takes no rows. Look at its disk and at the log of the server. Only rows of reads are lost: the server refuses a change whose row it cannot write. With --audit-required it refuses such reads, too.",
    },
    Alert {
        name: "ZoppServerHandshakesFail",
        expression: "sum by (namespace, job) (rate(zopp_server_handshakes_failed_total[10m]) $mine) > 0.1",
        since: "30m",
        severity: "info",
        summary: "TLS handshakes with $program fail {{ $value }} times a second",
        runbook: "Clients do not trust the certificate, expect another name in it, or lack the client certificate that the server demands. A probe that opens a TCP connection and closes it counts, too.",
    },
    Alert {
        name: "ZoppServerCertificateUnusable",
        expression: r#"sum by (namespace, job, instance) (increase(zopp_server_certificate_reloads_total{result="error"}[1h]) $mine) > 0"#,
        since: "0m",
        severity: "warning",
        summary: "$program on {{ $labels.instance }} cannot use its new certificate",
        runbook: "New connections still get the former certificate, until it expires. The log names the file and the fault. The server reports a fault once, so the alert ends an hour later even if the files are still wrong.",
    },
];

const SERVER_PANELS: &[Panel] = &[
    Panel {
        title: "Calls by result",
        unit: "reqps",
        queries: &[("sum by (code) (rate(zopp_server_requests_total[5m]) $mine)", "{{code}}")],
    },
    Panel {
        title: "Calls by method",
        unit: "reqps",
        queries: &[("sum by (method) (rate(zopp_server_requests_total[5m]) $mine)", "{{method}}")],
    },
    Panel {
        title: "How long calls take",
        unit: "s",
        queries: &[
            ("histogram_quantile(0.5, sum by (le) (rate(zopp_server_request_seconds_bucket[5m]) $mine))", "half"),
            ("histogram_quantile(0.99, sum by (le) (rate(zopp_server_request_seconds_bucket[5m]) $mine))", "99 of 100"),
        ],
    },
    Panel {
        title: "How long calls take by method, 99 of 100",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.99, sum by (method, le) (rate(zopp_server_request_seconds_bucket[5m]) $mine))",
            "{{method}}",
        )],
    },
    Panel {
        title: "Connections",
        unit: "short",
        queries: &[
            ("sum by (instance) (zopp_server_connections $mine)", "{{instance}}"),
            (
                "sum by (limit) (increase(zopp_server_connections_refused_total[5m]) $mine)",
                "refused in 5 minutes: {{limit}}",
            ),
        ],
    },
    Panel {
        title: "Calls refused because of a limit",
        unit: "ops",
        queries: &[("sum by (limit) (rate(zopp_server_limits_reached_total[5m]) $mine)", "{{limit}}")],
    },
    Panel {
        title: "Rechecks of watches",
        unit: "ops",
        queries: &[("sum (rate(zopp_server_watch_rechecks_total[5m]) $mine)", "rechecks")],
    },
    Panel {
        title: "Faults in 5 minutes",
        unit: "short",
        queries: &[
            ("sum (increase(zopp_server_answers_not_taken_total[5m]) $mine)", "answers not taken"),
            ("sum (increase(zopp_server_audit_rows_lost_total[5m]) $mine)", "audit rows lost"),
            ("sum (increase(zopp_server_handshakes_failed_total[5m]) $mine)", "handshakes failed"),
            (
                r#"sum (increase(zopp_server_certificate_reloads_total{result="error"}[5m]) $mine)"#,
                "unusable certificates",
            ),
        ],
    },
];

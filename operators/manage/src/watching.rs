//! The alerts and panels about the calls to the management server. Those about the items and their lists are the framework's.

use konverge::generate::watching::{Alert, Inhibition, Panel};

/// One outage fires one alert. A paused account hides no failing requests of others. A refused token silences `ManagePaused` while no other account is
/// paused, because requests are not counted by account.
pub(crate) const INHIBITIONS: &[Inhibition] = &[
    Inhibition {
        source: "ManageTokenRefused",
        target: "ManagePaused",
        equal: "namespace, job",
        expression: r#"(sum by (namespace, job) (increase(openzro_requests_total{code="401"}[15m]) $mine) > 0 and on (namespace, job) count by (namespace, job) (openzro_requests_paused > 0) == 1)"#,
    },
    Inhibition {
        source: "ManagePaused",
        target: "ManageRequestsFail",
        equal: "namespace, job",
        expression: "min by (namespace, job) (openzro_requests_paused) > 0",
    },
    Inhibition {
        source: "ManagePaused",
        target: "OperatorRemoteListOld",
        equal: "namespace, job, scope",
        expression: "openzro_requests_paused > 0",
    },
];

/// The alerts that fire while openZro is not as the objects declare, each with the cause.
pub(crate) const ALERTS: &[Alert] = &[
    Alert {
        name: "ManageTokenRefused",
        expression: r#"sum by (namespace, job, code) (increase(openzro_requests_total{code=~"401|403"}[15m]) $mine) > 0"#,
        since: "10m",
        severity: "critical",
        summary: "openZro refuses the token of $program with the code {{ $labels.code }}",
        runbook: "The operator cannot write to openZro. The token is expired or revoked, or its service user lacks the role admin. Put a new token into the Secret; no restart is needed. With --account, look for objects with the reason TokenRefused or PermissionDenied: their namespace is that of the account.",
    },
    Alert {
        name: "ManagePaused",
        expression: "max by (namespace, job, scope) (openzro_requests_paused $mine) > 0",
        since: "10m",
        severity: "warning",
        summary: "$program has paused its requests to openZro (namespace of the account: {{ $labels.scope }})",
        runbook: "The management server does not answer. The conditions of the objects have the error. After each pause the operator sends one request to see whether the server works again. The namespace is that of a tenant with --account, or empty for the account of the operator itself. If the server refuses the token of the only account that is paused, ManageTokenRefused fires instead.",
    },
    Alert {
        name: "ManageRequestsFail",
        expression: r#"sum by (namespace, job, code) (rate(openzro_requests_total{code=~"5..|none"}[10m]) $mine) > 0"#,
        since: "15m",
        severity: "warning",
        summary: "Requests of $program to openZro fail with the code {{ $labels.code }}",
        runbook: "openZro keeps its last state, and the operator retries. The code none stands for a response that did not arrive: check the address and the network. For a code from 500 on, read the log of the management server. While the requests to all accounts are paused, ManagePaused fires instead.",
    },
    Alert {
        name: "ManageRateLimited",
        expression: r#"sum by (namespace, job) (rate(openzro_requests_total{code="429"}[10m]) $mine) > 0"#,
        since: "15m",
        severity: "warning",
        summary: "openZro refuses requests of $program, because it sends too many",
        runbook: "Changes arrive late. Lower --requests-per-second, raise --interval, or raise the limit of the server or of the proxy before it.",
    },
    Alert {
        name: "ManageDeletionsStopped",
        expression: "max by (namespace, job) (openzro_deletions_stopped $mine) > 0",
        since: "0m",
        severity: "warning",
        summary: "{{ $value }} deletions in openZro wait for an approval",
        runbook: "More objects are being deleted than the operator deletes in openZro without approval, so they wait. Conditions with the reason DeletionsStopped name the objects. If the deletions are meant, run kubectl konverge approve. If they are a mistake, annotate the objects with konverge.dev/deletion=orphan, and create them again. In a namespace that is being deleted they wait for 15 minutes.",
    },
    Alert {
        name: "ManageSlow",
        expression: "histogram_quantile(0.99, sum by (namespace, job, le) (rate(openzro_request_seconds_bucket[30m]) $mine)) > 5",
        since: "30m",
        severity: "warning",
        summary: "The slowest requests to openZro take {{ $value }} seconds",
        runbook: "Look at the load of the management server and of its database. Lists grow with the peers of the account.",
    },
];

pub(crate) const PANELS: &[Panel] = &[
    Panel {
        title: "Requests to openZro",
        unit: "reqps",
        queries: &[("sum by (method, code) (rate(openzro_requests_total[5m]) $mine)", "{{method}} {{code}}")],
    },
    Panel {
        title: "How long openZro takes",
        unit: "s",
        queries: &[
            ("histogram_quantile(0.5, sum by (le) (rate(openzro_request_seconds_bucket[5m]) $mine))", "half"),
            ("histogram_quantile(0.99, sum by (le) (rate(openzro_request_seconds_bucket[5m]) $mine))", "99 of 100"),
        ],
    },
    Panel {
        title: "Budget of requests to openZro, and pauses",
        unit: "short",
        queries: &[
            ("max by (scope) (openzro_request_budget $mine)", "requests a second {{scope}}"),
            ("max by (scope) (openzro_requests_paused $mine)", "paused {{scope}}"),
        ],
    },
    Panel {
        title: "Deletions in openZro that wait for an approval",
        unit: "short",
        queries: &[("max(openzro_deletions_stopped $mine)", "deletions")],
    },
];

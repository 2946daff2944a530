//! Every shipped alert fires once its expression has held for its time, and not before.

use serde_json::json;

use crate::rules::{AGES, FALLS, GROWS, ONSET, RISES, evaluate, name, series, shipped, state, waits};

/// The number of minutes after its time within which an alert must have fired. A rate needs two samples, and some series grow for minutes
/// up to the threshold.
const GRACE: u64 = 65;

/// An alert's name, and the series that cross its expression at [`ONSET`] in the notation of promtool.
type Crossing = (&'static str, &'static [(&'static str, &'static str)]);

const CROSSINGS: &[Crossing] = &[
    ("PullSecretsOutOfSync", &[(r#"konverge_pull_bindings{reason="Contested"}"#, RISES)]),
    ("PullSourceSilent", &[("konverge_pull_stalest_seconds{}", AGES)]),
    (
        "PullSlow",
        &[
            (r#"konverge_pull_propagation_seconds_bucket{le="1"}"#, "0x3000"),
            (r#"konverge_pull_propagation_seconds_bucket{le="5"}"#, GROWS),
            (r#"konverge_pull_propagation_seconds_bucket{le="+Inf"}"#, GROWS),
        ],
    ),
    ("PullMissesEvents", &[("konverge_pull_missed_events_total{}", GROWS)]),
    ("PushObjectsOutOfSync", &[(r#"konverge_push_bindings{reason="LoginFailed"}"#, RISES)]),
    ("PushLoginFails", &[(r#"vault_sync_operator_auth_attempts_total{result="failed"}"#, GROWS)]),
    ("PushWritesFail", &[(r#"vault_sync_operator_vault_write_errors_total{error_type="denied"}"#, GROWS)]),
    ("PushDeletionsFail", &[("konverge_push_vault_delete_errors_total{}", GROWS)]),
    ("PushOrphans", &[("konverge_push_orphans{}", RISES)]),
    ("PushDeletionsStopped", &[("konverge_push_deletions_stopped{}", RISES)]),
    ("PushDrift", &[("konverge_push_drift_total{}", GROWS)]),
    (
        "PushSlow",
        &[
            (r#"konverge_push_propagation_seconds_bucket{le="2.5"}"#, "0x3000"),
            (r#"konverge_push_propagation_seconds_bucket{le="5"}"#, GROWS),
            (r#"konverge_push_propagation_seconds_bucket{le="+Inf"}"#, GROWS),
        ],
    ),
    ("RollWaitsLong", &[("konverge_roll_oldest_pending_seconds{}", AGES)]),
    ("RollPatchesFail", &[(r#"konverge_roll_rollouts_total{kind="Deployment",result="refused"}"#, GROWS)]),
    ("RollFailed", &[("konverge_roll_failed_workloads{}", RISES)]),
    ("RollSourceRunsAway", &[("konverge_roll_runaway_sources{}", RISES)]),
    ("RollVaultFails", &[("konverge_roll_vault_failing{}", RISES)]),
    ("RollReadsFail", &[(r#"konverge_roll_failed_checks_total{reason="AccessDenied"}"#, GROWS)]),
    ("ManageTokenRefused", &[(r#"openzro_requests_total{method="GET",route="/groups",code="401"}"#, GROWS)]),
    ("ManageDeletionsStopped", &[("openzro_deletions_stopped{}", RISES)]),
    ("ManagePaused", &[(r#"openzro_requests_paused{scope="shop"}"#, RISES)]),
    ("ManageRequestsFail", &[(r#"openzro_requests_total{method="GET",route="/groups",code="none"}"#, GROWS)]),
    ("ManageRateLimited", &[(r#"openzro_requests_total{method="GET",route="/groups",code="429"}"#, GROWS)]),
    (
        "ManageSlow",
        &[
            (r#"openzro_request_seconds_bucket{le="5"}"#, "0x3000"),
            (r#"openzro_request_seconds_bucket{le="10"}"#, GROWS),
            (r#"openzro_request_seconds_bucket{le="+Inf"}"#, GROWS),
        ],
    ),
    ("ZoppServerAbsent", &[]),
    (
        "ZoppServerCallsFail",
        &[(r#"zopp_server_requests_total{method="zopp.ZoppService/SetSecret",code="Unavailable"}"#, GROWS)],
    ),
    (
        "ZoppServerSlow",
        &[
            (r#"zopp_server_request_seconds_bucket{le="1.024"}"#, "0x3000"),
            (r#"zopp_server_request_seconds_bucket{le="2.048"}"#, GROWS),
            (r#"zopp_server_request_seconds_bucket{le="+Inf"}"#, GROWS),
        ],
    ),
    ("ZoppServerLimitsReached", &[(r#"zopp_server_limits_reached_total{limit="--max-answer-bytes"}"#, GROWS)]),
    ("ZoppServerConnectionsRefused", &[(r#"zopp_server_connections_refused_total{limit="--max-connections"}"#, GROWS)]),
    ("ZoppServerAnswersNotTaken", &[("zopp_server_answers_not_taken_total{}", GROWS)]),
    ("ZoppServerAuditRowsLost", &[("zopp_server_audit_rows_lost_total{}", RISES)]),
    ("ZoppServerHandshakesFail", &[("zopp_server_handshakes_failed_total{}", "0x10 0+60x3000")]),
    ("ZoppServerCertificateUnusable", &[(r#"zopp_server_certificate_reloads_total{result="error"}"#, "0x9 1x3000")]),
    ("OperatorRemoteListOld", &[(r#"konverge_remote_list_age_seconds{collection="group",scope=""}"#, AGES)]),
    ("OperatorRemoteDrift", &[(r#"konverge_remote_drift_found_total{collection="group"}"#, GROWS)]),
    ("OperatorAbsent", &[]),
    ("OperatorLeaderMissing", &[(r#"leader_election_master_status{name="lease"}"#, FALLS)]),
    ("OperatorCheckFails", &[(r#"konverge_check_status{kind="readiness",check="watch"}"#, FALLS)]),
    ("OperatorWarns", &[(r#"konverge_check_status{kind="warning",check="permission"}"#, FALLS)]),
    ("OperatorRunsFail", &[(r#"controller_runtime_reconcile_errors_total{controller="one"}"#, GROWS)]),
    ("OperatorPanics", &[(r#"controller_runtime_reconcile_panics_total{controller="one"}"#, RISES)]),
    ("OperatorQueueStuck", &[(r#"workqueue_longest_running_processor_seconds{controller="one"}"#, AGES)]),
    ("OperatorQueueGrows", &[(r#"workqueue_depth{controller="one"}"#, "0x9 101x3000")]),
    (
        "OperatorObjectsStalled",
        &[(r#"konverge_objects_by_condition{controller="one",type="Stalled",status="True",reason="Refused"}"#, RISES)],
    ),
    ("OperatorObjectsPaused", &[(r#"konverge_paused_objects{controller="one"}"#, RISES)]),
    ("OperatorObjectsUndecodable", &[(r#"konverge_cache_undecodable_objects{resource="secrets"}"#, RISES)]),
    ("OperatorApiRequestsFail", &[(r#"rest_client_requests_total{code="403"}"#, "0x10 0+60x3000")]),
    ("OperatorWebhooksFail", &[(r#"controller_runtime_webhook_requests_total{code="500",webhook="one"}"#, GROWS)]),
    // A certificate that ends so long after the beginning that the last day begins at the onset.
    ("OperatorWebhookCertificateEnds", &[("konverge_webhook_certificate_expiry_timestamp_seconds{}", "86970x3000")]),
];

#[test]
fn every_alert_fires_when_its_expression_has_held_for_its_time_and_not_before() {
    for shipped in shipped() {
        let tests: Vec<_> = shipped
            .rules
            .iter()
            .map(|rule| {
                let alert = name(rule);
                let (_, crossing) = CROSSINGS
                    .iter()
                    .find(|(known, _)| *known == alert)
                    .unwrap_or_else(|| panic!("no series that cross {alert} are known"));
                // Without a series of its own it is about the one that says that the program runs.
                let runs = if crossing.is_empty() { "1x9 _x3000" } else { "1x3000" };
                let mut input = vec![series(&shipped.build_info(), runs)];
                input.extend(crossing.iter().map(|(name, values)| series(name, values)));
                let fires = ONSET + waits(rule);
                let before = if waits(rule) == 0 { ONSET - 1 } else { fires - 1 };
                json!({
                    "name": alert,
                    "interval": "1m",
                    "input_series": input,
                    "promql_expr_test": [
                        state("pending", ONSET - 1, &[]),
                        state("firing", before, &[]),
                        state("firing", fires + GRACE, &[alert]),
                    ],
                })
            })
            .collect();
        evaluate(&shipped.rules, &tests);
    }
}

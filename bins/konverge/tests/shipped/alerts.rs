//! Every shipped alert, evaluated by Prometheus' own engine: it fires once its expression has held for its time, and not before.

use std::{fs, path::Path, process::Command, time::Duration};

use konverge_e2e::Stage;
use konverge_testkit::{eventually, metric};
use konverge_testkit_stores::promtool;
use serde_json::{Value, json};

/// The labels that Prometheus adds to each series of a target.
const TARGET: &str = r#"namespace="home",job="konverge",instance="one""#;

/// The minute in which the fault begins.
const ONSET: u64 = 10;

/// The number of minutes after its time within which an alert must have fired. A rate needs two samples, and some series grow for minutes
/// up to the threshold.
const GRACE: u64 = 65;

/// An hour, in minutes.
const HOUR: u64 = 60;

/// An alert's name, and the series that cross its expression at [`ONSET`] in the notation of promtool.
type Crossing = (&'static str, &'static [(&'static str, &'static str)]);

/// A counter that grows by one each minute from then on.
const GROWS: &str = "0x10 0+1x3000";

/// A gauge that becomes one.
const RISES: &str = "0x9 1x3000";

/// A gauge that becomes zero.
const FALLS: &str = "1x9 0x3000";

/// Seconds that have passed since then.
const AGES: &str = "0x10 0+60x3000";

const CROSSINGS: &[Crossing] = &[
    ("PullSecretsOutOfSync", &[(r#"konverge_pull_bindings{reason="PermissionDenied"}"#, RISES)]),
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
    ("RollPatchesFail", &[(r#"konverge_roll_rollouts_total{kind="Deployment",result="failed"}"#, GROWS)]),
    ("RollSourceRunsAway", &[("konverge_roll_runaway_sources{}", RISES)]),
    ("RollVaultFails", &[("konverge_roll_vault_failing{}", RISES)]),
    ("RollReadsFail", &[(r#"konverge_roll_failed_checks_total{reason="AccessDenied"}"#, GROWS)]),
    ("ManageTokenRefused", &[(r#"openzro_requests_total{method="GET",route="/groups",code="401"}"#, GROWS)]),
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

/// The rules of one program.
struct Rules {
    program: String,
    rules: Vec<Value>,
}

impl Rules {
    /// The series that says that the program runs.
    fn build_info(&self) -> String {
        match self.program.as_str() {
            "zopp-server" => r#"zopp_server_build_info{version="1"}"#.to_owned(),
            program => format!("konverge_build_info{{program=\"{program}\"}}"),
        }
    }
}

/// The rules of each program that the repository ships.
fn shipped() -> Vec<Rules> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let files =
        ["pull", "push", "roll", "manage", "server"].map(|job| format!("charts/konverge/files/alerts/{job}.yaml"));
    let rules = files.into_iter().map(|file| {
        let text = fs::read_to_string(root.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let content: Value = serde_saphyr::from_str(&text).unwrap();
        let group = &content["groups"][0];
        Rules { program: group["name"].as_str().unwrap().to_owned(), rules: group["rules"].as_array().unwrap().clone() }
    });
    rules.collect()
}

fn name(rule: &Value) -> &str {
    rule["alert"].as_str().unwrap()
}

/// For how many minutes the expression must hold.
fn waits(rule: &Value) -> u64 {
    let text = rule["for"].as_str().unwrap();
    let (number, unit) = text.split_at(text.len() - 1);
    let minutes = match unit {
        "m" => 1,
        "h" => 60,
        _ => panic!("{text} is in another unit"),
    };
    number.parse::<u64>().unwrap() * minutes
}

/// A series with the labels of the target.
fn series(series: &str, values: &str) -> Value {
    let labelled = series.strip_suffix('}').unwrap();
    let comma = if labelled.ends_with('{') { "" } else { "," };
    json!({ "series": format!("{labelled}{comma}{TARGET}}}"), "values": values })
}

/// States which alerts of a kind have been active in the time up to a minute.
fn state(state: &str, minute: u64, alerts: &[&str]) -> Value {
    let samples: Vec<_> =
        alerts.iter().map(|alert| json!({ "labels": format!("{{alertname=\"{alert}\"}}"), "value": 1 })).collect();
    json!({
        "expr": format!("group by (alertname) (present_over_time(ALERTS{{alertstate=\"{state}\"}}[{minute}m]))"),
        "eval_time": format!("{minute}m"),
        "exp_samples": samples,
    })
}

/// Runs promtool's tests with the rules of one program.
fn evaluate(rules: &[Value], tests: &[Value]) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: Value| fs::write(folder.path().join(name), content.to_string()).unwrap();
    write("rules.yaml", json!({ "groups": [{ "name": "shipped", "rules": rules }] }));
    write("tests.yaml", json!({ "rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests }));
    let mut command = Command::new(promtool().unwrap());
    let output = command.args(["test", "rules", "tests.yaml"]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

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

/// The outage of a system outside: the program that needs it, the series that change, and the only alert that fires.
type Outage = (&'static str, &'static [(&'static str, &'static str)], &'static str);

const OUTAGES: [Outage; 4] = [
    (
        "zopp-operator",
        &[
            (r#"konverge_check_status{kind="readiness",check="zopp-server"}"#, FALLS),
            ("konverge_pull_stalest_seconds{}", AGES),
            (r#"konverge_pull_bindings{reason="ServerUnreachable"}"#, RISES),
        ],
        "OperatorCheckFails",
    ),
    // The server works, but one environment hangs.
    (
        "zopp-operator",
        &[
            (r#"konverge_check_status{kind="readiness",check="zopp-server"}"#, "1x3000"),
            ("konverge_pull_stalest_seconds{}", AGES),
            (r#"konverge_pull_bindings{reason="ServerUnreachable"}"#, RISES),
        ],
        "PullSourceSilent",
    ),
    (
        "vault-sync-operator",
        &[
            (r#"konverge_check_status{kind="readiness",check="vault"}"#, FALLS),
            (r#"konverge_push_bindings{reason="VaultUnreachable"}"#, RISES),
            (r#"vault_sync_operator_vault_write_errors_total{error_type="unreachable"}"#, GROWS),
            ("konverge_push_vault_delete_errors_total{}", GROWS),
        ],
        "OperatorCheckFails",
    ),
    (
        "openzro-operator",
        &[
            (r#"openzro_requests_paused{scope=""}"#, RISES),
            (r#"openzro_requests_total{method="GET",route="/groups",code="none"}"#, GROWS),
        ],
        "ManagePaused",
    ),
];

#[test]
fn one_outage_fires_one_alert() {
    for (program, changes, alert) in OUTAGES {
        let shipped = shipped().into_iter().find(|shipped| shipped.program == program).unwrap();
        let mut input = vec![series(&shipped.build_info(), "1x3000")];
        input.extend(changes.iter().map(|(name, values)| series(name, values)));
        let test = json!({
            "name": program,
            "interval": "1m",
            "input_series": input,
            "promql_expr_test": [state("firing", ONSET + 2 * HOUR, &[alert])],
        });
        evaluate(&shipped.rules, &[test]);
    }
}

/// Returns the series that Prometheus would have stored, if it had scraped the first text up to the onset, and the
/// second one from then on.
fn stored(before: &str, after: &str) -> Vec<Value> {
    let samples = |text: &str| -> Vec<(String, f64)> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let sample = |line: &str| {
            // Behind the value there may be an exemplar.
            let (name, value) = line.split(" # ").next()?.rsplit_once(' ')?;
            let name = if name.contains('{') { name.to_owned() } else { format!("{name}{{}}") };
            Some((name, value.parse().ok()?))
        };
        lines.map(|line| sample(line).unwrap_or_else(|| panic!("no sample: {line}"))).collect()
    };
    let old = samples(before);
    let stored = samples(after).into_iter().map(|(name, value)| {
        // A blank is repeated as often as it says; a value comes once more.
        let known = old.iter().find(|(known, _)| *known == name);
        let first = known.map_or_else(|| format!("_x{ONSET}"), |(_, value)| format!("{value}x{}", ONSET - 1));
        series(&name, &format!("{first} {value}x3000"))
    });
    stored.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_fires_for_a_secret_that_a_running_operator_cannot_fill() {
    let stage = Stage::set().await.unwrap();
    let namespace = stage.control_plane.namespace("alerts").await.unwrap();
    let mut environments = Vec::new();
    for name in ["granted", "refused"] {
        let environment = stage.environment(name).await.unwrap();
        stage.user.set(&environment, "KEY", b"value").await.unwrap();
        environments.push(environment);
    }
    let remove = ["permission", "env-remove", "-w", "acme", "-p", "backend", "-e", "refused", "--principal"];
    stage.user.zopp(remove.into_iter().chain([stage.principal()])).await.unwrap();
    let operator = stage.operator("zopp-operator", &namespace).await.unwrap();
    let scraped = |reason: &str, count: f64| {
        let (label, operator) = (format!("reason=\"{reason}\""), &operator);
        async move {
            let found = eventually(Duration::from_mins(1), || async {
                let (_, text) = operator.get("/metrics").await.ok()?;
                (metric(&text, "konverge_pull_bindings", &label) >= count).then_some(text)
            });
            found.await.unwrap_or_else(|error| panic!("{count} objects with {label}: {error}"))
        }
    };
    stage.bind(&namespace, "granted", &environments[0]).await.unwrap();
    let healthy = scraped("Synced", 1.0).await;
    stage.bind(&namespace, "refused", &environments[1]).await.unwrap();
    let faulty = scraped("PermissionDenied", 1.0).await;

    let rules = shipped().into_iter().find(|rules| rules.program == "zopp-operator").unwrap().rules;
    let alert = "PullSecretsOutOfSync";
    let fires = ONSET + waits(rules.iter().find(|rule| name(rule) == alert).unwrap());
    let test = |after: &str, tests: Value| json!({ "interval": "1m", "input_series": stored(&healthy, after), "promql_expr_test": tests });
    evaluate(
        &rules,
        &[
            test(&healthy, json!([state("pending", HOUR, &[]), state("firing", HOUR, &[])])),
            test(&faulty, json!([state("firing", fires - 1, &[]), state("firing", fires, &[alert])])),
        ],
    );
}

//! One outage of a system outside fires one alert: with series as they would be, and with those of operators that run through one.

use std::time::{Duration, Instant};

use konverge_e2e::{ManageStage, Operator, PushStage, Stage, annotated_deployment, yaml};
use konverge_openzro_testing::Double;
use konverge_testkit::{ControlPlane, Options, http_get, metric};
use konverge_testkit_stores::{Fault, HttpFront, VaultStorage};
use serde_json::{Value, json};

use crate::rules::{AGES, FALLS, GROWS, HOUR, ONSET, RISES, evaluate, name, series, shipped, state, waits};

/// An outage: the program that needs the system, the series that change, and the only alert that fires.
type Outage = (&'static str, &'static [(&'static str, &'static str)], &'static str);

/// Runs that fail.
const RUNS_FAIL: (&str, &str) = (r#"controller_runtime_reconcile_errors_total{controller="push"}"#, GROWS);

const OUTAGES: [Outage; 9] = [
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
    // Vault is away for longer than the token lives.
    (
        "vault-sync-operator",
        &[
            (r#"konverge_check_status{kind="readiness",check="vault"}"#, FALLS),
            (r#"konverge_push_bindings{reason="VaultUnreachable"}"#, RISES),
            (r#"konverge_push_bindings{reason="LoginFailed"}"#, RISES),
            (r#"vault_sync_operator_auth_attempts_total{result="failed"}"#, GROWS),
            (r#"vault_sync_operator_vault_write_errors_total{error_type="connection_failed"}"#, GROWS),
            ("konverge_push_vault_delete_errors_total{}", GROWS),
            RUNS_FAIL,
        ],
        "OperatorCheckFails",
    ),
    // Vault answers, but writes take too long.
    (
        "vault-sync-operator",
        &[
            (r#"konverge_check_status{kind="readiness",check="vault"}"#, "1x3000"),
            (r#"konverge_push_bindings{reason="VaultTimeout"}"#, RISES),
            (r#"vault_sync_operator_vault_write_errors_total{error_type="connection_failed"}"#, GROWS),
            RUNS_FAIL,
        ],
        "PushWritesFail",
    ),
    // Vault comes and goes, so that the check never fails for ten minutes.
    (
        "vault-sync-operator",
        &[
            (
                r#"konverge_check_status{kind="readiness",check="vault"}"#,
                "1x9 0x4 1 0x4 1 0x4 1 0x4 1 0x4 1 0x4 1 0x4 1 0x4 1 0x4 1 0x4 1 0x4 1 0x4 1 0x4 1x3000",
            ),
            (r#"vault_sync_operator_vault_write_errors_total{error_type="connection_failed"}"#, GROWS),
            RUNS_FAIL,
        ],
        "PushWritesFail",
    ),
    (
        "vault-rollout-operator",
        &[(r#"konverge_check_status{kind="warning",check="vault"}"#, FALLS), ("konverge_roll_vault_failing{}", RISES)],
        "RollVaultFails",
    ),
    (
        "openzro-operator",
        &[
            (r#"openzro_requests_paused{scope=""}"#, RISES),
            (r#"openzro_requests_total{method="GET",route="/groups",code="none"}"#, GROWS),
            (r#"konverge_remote_list_age_seconds{collection="group",scope=""}"#, AGES),
            (r#"konverge_remote_list_age_seconds{collection="policy",scope=""}"#, AGES),
            RUNS_FAIL,
        ],
        "ManagePaused",
    ),
    (
        "openzro-operator",
        &[
            (r#"openzro_requests_paused{scope=""}"#, RISES),
            (r#"openzro_requests_total{method="GET",route="/groups",code="401"}"#, GROWS),
            (r#"konverge_remote_list_age_seconds{collection="group",scope=""}"#, AGES),
            RUNS_FAIL,
        ],
        "ManageTokenRefused",
    ),
    // One collection cannot be listed, and others can.
    (
        "openzro-operator",
        &[
            (r#"openzro_requests_paused{scope=""}"#, "0x3000"),
            (r#"konverge_remote_list_age_seconds{collection="group",scope=""}"#, AGES),
            RUNS_FAIL,
        ],
        "OperatorRemoteListOld",
    ),
];

#[test]
fn one_outage_fires_one_alert() {
    for (program, changes, alert) in OUTAGES {
        let shipped = shipped().into_iter().find(|shipped| shipped.program == program).unwrap();
        let mut input = vec![series(&shipped.build_info(), "1x3000")];
        input.extend(changes.iter().map(|(name, values)| series(name, values)));
        let test = json!({
            "name": alert,
            "interval": "1m",
            "input_series": input,
            "promql_expr_test": [state("firing", ONSET + 2 * HOUR, &[alert])],
        });
        evaluate(&shipped.rules, &[test]);
    }
}

/// The account of the operator works, and that of a tenant does not.
#[test]
fn a_paused_account_hides_no_failure_of_another() {
    let shipped = shipped().into_iter().find(|shipped| shipped.program == "openzro-operator").unwrap();
    let changes = [
        (r#"openzro_requests_paused{scope="shop"}"#, RISES),
        (r#"openzro_requests_paused{scope=""}"#, "0x3000"),
        (r#"openzro_requests_total{method="GET",route="/groups",code="500"}"#, GROWS),
        (r#"konverge_remote_list_age_seconds{collection="group",scope="shop"}"#, AGES),
        (r#"konverge_remote_list_age_seconds{collection="group",scope=""}"#, AGES),
    ];
    let mut input = vec![series(&shipped.build_info(), "1x3000")];
    input.extend(changes.iter().map(|(name, values)| series(name, values)));
    let lists = format!(
        r#"group by (scope) (present_over_time(ALERTS{{alertname="OperatorRemoteListOld",alertstate="firing"}}[{HOUR}m]))"#
    );
    let tests = [
        state("firing", ONSET + HOUR, &["ManagePaused", "ManageRequestsFail", "OperatorRemoteListOld"]),
        json!({ "expr": lists, "eval_time": format!("{HOUR}m"), "exp_samples": [{ "labels": "{}", "value": 1 }] }),
    ];
    evaluate(&shipped.rules, &[json!({ "interval": "1m", "input_series": input, "promql_expr_test": tests })]);
}

/// The token of one tenant is refused, and the server of another is away.
#[test]
fn a_refused_token_hides_no_outage_of_another_account() {
    let shipped = shipped().into_iter().find(|shipped| shipped.program == "openzro-operator").unwrap();
    let changes = [
        (r#"openzro_requests_paused{scope="shop"}"#, RISES),
        (r#"openzro_requests_paused{scope="bank"}"#, RISES),
        (r#"openzro_requests_total{method="GET",route="/groups",code="401"}"#, GROWS),
        (r#"openzro_requests_total{method="GET",route="/groups",code="none"}"#, GROWS),
    ];
    let mut input = vec![series(&shipped.build_info(), "1x3000")];
    input.extend(changes.iter().map(|(name, values)| series(name, values)));
    let tests = [state("firing", ONSET + HOUR, &["ManagePaused", "ManageTokenRefused"])];
    evaluate(&shipped.rules, &[json!({ "interval": "1m", "input_series": input, "promql_expr_test": tests })]);
}

/// The metrics of an operator before a fault, with the fault, and a while later.
struct Scrapes {
    healthy: String,
    faulty: String,
    later: String,
    /// The time between the last two.
    apart: Duration,
    /// The age that grows as long as the fault goes on. Others fall with the next answer.
    age: &'static str,
}

impl Scrapes {
    /// Waits until the fault shows in the metrics, and then until this metric has grown by `growth`.
    async fn of(
        operator: &Operator,
        healthy: String,
        is_faulty: impl Fn(&str) -> bool,
        (grows, growth): (&str, f64),
        age: &'static str,
    ) -> Self {
        let faulty = until(operator, is_faulty).await;
        let (from, began) = (metric(&faulty, grows, ""), Instant::now());
        let later = until(operator, |text| metric(text, grows, "") >= from + growth).await;
        Self { healthy, faulty, later, apart: began.elapsed(), age }
    }

    /// Returns the series that Prometheus would have stored, if the operator had been healthy up to the onset, and the fault had gone on.
    fn stored(&self) -> Vec<Value> {
        let (healthy, faulty) = (samples(&self.healthy), samples(&self.faulty));
        let find =
            |list: &[(String, f64)], name: &str| list.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        let stored = samples(&self.later).into_iter().map(|(name, value)| {
            // A blank is repeated as often as it says; a value comes once more.
            let first =
                find(&healthy, &name).map_or_else(|| format!("_x{ONSET}"), |value| format!("{value}x{}", ONSET - 1));
            let grown =
                find(&faulty, &name).filter(|_| self.grows(&name)).map_or(0.0, |start| (value - start).max(0.0));
            let each_minute = grown * 60.0 / self.apart.as_secs_f64();
            series(&exported(&name), &format!("{first} {value}+{each_minute}x3000"))
        });
        stored.collect()
    }

    /// Whether a series goes on to grow, rather than up and down.
    fn grows(&self, series: &str) -> bool {
        let name = series.split('{').next().unwrap_or_default();
        name == self.age || ["_total", "_bucket", "_sum", "_count"].iter().any(|ending| name.ends_with(ending))
    }
}

/// Renames the labels that Prometheus sets itself, as it does.
fn exported(series: &str) -> String {
    ["namespace", "job", "instance"].iter().fold(series.to_owned(), |series, label| {
        let renamed = format!("exported_{label}=\"");
        let of = |before: &str, series: String| {
            series.replace(&format!("{before}{label}=\""), &format!("{before}{renamed}"))
        };
        of(",", of("{", series))
    })
}

/// The series of a scrape with their values.
fn samples(text: &str) -> Vec<(String, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let sample = |line: &str| {
        // Behind the value there may be an exemplar.
        let (name, value) = line.split(" # ").next()?.rsplit_once(' ')?;
        let name = if name.contains('{') { name.to_owned() } else { format!("{name}{{}}") };
        Some((name, value.parse().ok()?))
    };
    lines.map(|line| sample(line).unwrap_or_else(|| panic!("no sample: {line}"))).collect()
}

/// Returns the metrics of an operator once they are as they should be.
async fn until(operator: &Operator, right: impl Fn(&str) -> bool) -> String {
    let scrape = async || {
        let (_, text) = http_get(operator.metrics_address(), "/metrics").await.map_err(|error| error.to_string())?;
        if right(&text) { Ok(text) } else { Err(text) }
    };
    konverge_testkit::until("the metrics are as they should be", scrape).await
}

/// Two hours of the fault fire this alert, and no other; without it none fires.
fn only_fires(program: &str, alert: &str, scrapes: &Scrapes) {
    let rules = shipped().into_iter().find(|rules| rules.program == program).unwrap().rules;
    let healthy = Scrapes {
        healthy: scrapes.healthy.clone(),
        faulty: scrapes.healthy.clone(),
        later: scrapes.healthy.clone(),
        ..*scrapes
    };
    let test = |name: &str, scrapes: &Scrapes, alerts: &[&str]| {
        let tests = [state("firing", ONSET + 2 * HOUR, alerts)];
        json!({ "name": name, "interval": "1m", "input_series": scrapes.stored(), "promql_expr_test": tests })
    };
    evaluate(&rules, &[test("healthy", &healthy, &[]), test(alert, scrapes, &[alert])]);
}

/// The time for which the zopp server has not answered about an environment.
const PULL_AGE: &str = "konverge_pull_stalest_seconds";

/// Runs that failed.
const RUN_ERRORS: &str = "controller_runtime_reconcile_errors_total";

#[tokio::test(flavor = "multi_thread")]
async fn a_zopp_server_that_is_away_fires_one_alert() {
    let mut stage = Stage::set().await.unwrap();
    let namespace = stage.control_plane.namespace("alerts").await.unwrap();
    let environment = stage.environment("granted").await.unwrap();
    stage.user.set(&environment, "KEY", b"value").await.unwrap();
    let operator = stage.operator("zopp-operator", &namespace).await.unwrap();
    stage.bind(&namespace, "granted", &environment).await.unwrap();
    let healthy = until(&operator, |text| metric(text, "konverge_pull_bindings", r#"reason="Synced""#) >= 1.0).await;
    stage.server.kill();
    let is_faulty = |text: &str| metric(text, "konverge_pull_bindings", r#"reason="ServerUnreachable""#) >= 1.0;
    let scrapes = Scrapes::of(&operator, healthy, is_faulty, (PULL_AGE, 3.0), PULL_AGE).await;
    only_fires("zopp-operator", "OperatorCheckFails", &scrapes);
}

/// An operator of push with a Deployment whose Secret is in Vault, and its metrics.
async fn pushed(control_plane: &ControlPlane, namespace: &str) -> (PushStage, String) {
    let mut push = PushStage::set(control_plane, namespace, VaultStorage::Memory, &[]).await.unwrap();
    apply_secret(control_plane, namespace, "before").await;
    let mut deployment = annotated_deployment("web", "web", &format!("secret/data/{namespace}/web"));
    deployment["metadata"]["namespace"] = namespace.into();
    control_plane.apply(&yaml(&deployment).unwrap()).await.unwrap();
    let is_synced = |text: &str| metric(text, "konverge_push_bindings", r#"reason="Synced""#) >= 1.0;
    let healthy = until(push.operator(), is_synced).await;
    (push, healthy)
}

async fn apply_secret(control_plane: &ControlPlane, namespace: &str, value: &str) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "web", "namespace": namespace }, "stringData": { "KEY": value },
    });
    control_plane.apply(&yaml(&secret).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vault_that_is_sealed_fires_one_alert() {
    let control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    let namespace = control_plane.namespace("alerts").await.unwrap();
    let (mut push, healthy) = pushed(&control_plane, &namespace).await;
    push.server().seal().await.unwrap();
    apply_secret(&control_plane, &namespace, "after").await;
    let is_faulty = |text: &str| {
        metric(text, "konverge_check_status", r#"check="vault""#) < 1.0
            && metric(text, "konverge_push_bindings", r#"reason="Vault"#) >= 1.0
    };
    let scrapes = Scrapes::of(push.operator(), healthy, is_faulty, (RUN_ERRORS, 2.0), "").await;
    only_fires("vault-sync-operator", "OperatorCheckFails", &scrapes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_to_vault_fires_one_alert() {
    let control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    let namespace = control_plane.namespace("alerts").await.unwrap();
    let (mut push, _) = pushed(&control_plane, &namespace).await;
    push.log_in_by_app_role(3, 3).await.unwrap();
    push.operator().kill();
    push.operator().start_again().await.unwrap();
    let is_synced = |text: &str| metric(text, "konverge_push_bindings", r#"reason="Synced""#) >= 1.0;
    let healthy = until(push.operator(), is_synced).await;
    push.server().request("DELETE", "auth/approle/role/push", &Value::Null).await.unwrap();
    until(push.operator(), |text| metric(text, "konverge_check_status", r#"check="vault""#) < 1.0).await;
    apply_secret(&control_plane, &namespace, "after").await;
    let is_faulty = |text: &str| metric(text, "konverge_push_bindings", r#"reason="LoginFailed""#) >= 1.0;
    let scrapes = Scrapes::of(push.operator(), healthy, is_faulty, (RUN_ERRORS, 1.0), "").await;
    only_fires("vault-sync-operator", "OperatorCheckFails", &scrapes);
}

/// Runs an operator of manage with a group in openZro, and then through this fault.
async fn manage_through(fault: impl FnOnce(&HttpFront, &std::path::Path), alert: &str) {
    let control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    let namespace = control_plane.namespace("alerts").await.unwrap();
    let double = Double::start().await.unwrap();
    let front = HttpFront::start(double.url()).await.unwrap();
    let token = ManageStage::token_file(&control_plane, &double.account().tokens["admin"]).unwrap();
    let mut stage = ManageStage::set(&control_plane, &front.url(), &token, &[]).await.unwrap();
    let group = async |name: &str| {
        let group = json!({
            "apiVersion": "openzro.io/v1", "kind": "OZGroup", "metadata": { "name": name, "namespace": namespace },
            "spec": { "name": format!("{namespace}/{name}") },
        });
        control_plane.apply(&yaml(&group).unwrap()).await.unwrap();
    };
    group("before").await;
    let is_there = |text: &str| {
        metric(text, "konverge_remote_writes_total", "") >= 1.0
            && metric(text, "konverge_remote_list_age_seconds", "") > 0.0
    };
    let healthy = until(stage.operator(), is_there).await;
    fault(&front, &token);
    group("after").await;
    let is_faulty = |text: &str| metric(text, "openzro_requests_paused", "") >= 1.0;
    let age = "konverge_remote_list_age_seconds";
    let scrapes = Scrapes::of(stage.operator(), healthy, is_faulty, (RUN_ERRORS, 2.0), age).await;
    only_fires("openzro-operator", alert, &scrapes);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_openzro_that_is_away_fires_one_alert() {
    manage_through(|front, _| front.plan(|_| Some(Fault::DropRequest)), "ManagePaused").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_of_openzro_fires_one_alert() {
    manage_through(|_, token| std::fs::write(token, "nbp_nobody").unwrap(), "ManageTokenRefused").await;
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
    let bound = |reason: &'static str| {
        move |text: &str| metric(text, "konverge_pull_bindings", &format!("reason=\"{reason}\"")) >= 1.0
    };
    stage.bind(&namespace, "granted", &environments[0]).await.unwrap();
    let healthy = until(&operator, bound("Synced")).await;
    stage.bind(&namespace, "refused", &environments[1]).await.unwrap();
    // The operator asks again, ever more seldom.
    let scrapes =
        Scrapes::of(&operator, healthy, bound("PermissionDenied"), ("konverge_pull_stream_ends_total", 1.0), "").await;

    let alert = "PullSecretsOutOfSync";
    let rules = shipped().into_iter().find(|rules| rules.program == "zopp-operator").unwrap().rules;
    let fires = ONSET + waits(rules.iter().find(|rule| name(rule) == alert).unwrap());
    let before = [state("pending", ONSET - 1, &[]), state("firing", fires - 1, &[])];
    let after = [state("firing", fires, &[alert])];
    let tests: Vec<_> = before.into_iter().chain(after).collect();
    evaluate(&rules, &[json!({ "interval": "1m", "input_series": scrapes.stored(), "promql_expr_test": tests })]);
    only_fires("zopp-operator", alert, &scrapes);
}

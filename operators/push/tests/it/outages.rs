//! Vault does not do its part, for a while or for good.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_push::object::Kind;
use konverge_testkit_stores::{VaultOptions, VaultServer, VaultStorage};
use konverge_vault::{Credential, Limits, Login, Vault, VaultConfig};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use tokio::time::Instant;

use crate::world::{World, until, vault_config};

async fn server() -> VaultServer {
    let options = VaultOptions { storage: VaultStorage::File, ..VaultOptions::default() };
    let server = VaultServer::start(options).await.unwrap();
    server.mount_kv("secret", 2).await.unwrap();
    server
}

/// A login whose tokens live for seconds.
async fn short_lived(server: &VaultServer) -> VaultConfig {
    server.request("POST", "sys/auth/approle", &json!({ "type": "approle" })).await.unwrap();
    server
        .policy(
            "push",
            "path \"secret/*\" { capabilities = [\"create\", \"read\", \"update\", \"patch\", \"delete\"] }",
        )
        .await
        .unwrap();
    token_lifetime(server, "5s", "12s").await;
    let role_id = server.request("GET", "auth/approle/role/push/role-id", &json!(null)).await.unwrap();
    let secret_id = server.request("POST", "auth/approle/role/push/secret-id", &json!({})).await.unwrap();
    let credential = |value: &serde_json::Value| {
        Credential::value(konverge_core::SecretValue::from(value.as_str().unwrap().to_owned()))
    };
    let login = Login::AppRole {
        mount: "approle".to_owned(),
        role_id: credential(&role_id["data"]["role_id"]),
        secret_id: Some(credential(&secret_id["data"]["secret_id"])),
    };
    let limits = Limits::default().with(|limits| limits.deadline = Duration::from_secs(5));
    VaultConfig::new(server.address(), login).unwrap().limits(limits)
}

/// Sets the lifetime of the tokens of the next logins, and the lifetime that renewals prolong it to.
async fn token_lifetime(server: &VaultServer, lifetime: &str, longest: &str) {
    let role = json!({ "token_policies": ["push"], "token_ttl": lifetime, "token_max_ttl": longest });
    server.request("POST", "auth/approle/role/push", &role).await.unwrap();
}

#[tokio::test]
async fn w3_tokens_that_end_or_are_revoked_are_replaced_and_no_write_is_lost() {
    let server = server().await;
    let world = World::with(&server).await;
    let vault = Vault::new(&short_lived(&server).await);
    let operator = world.operator_with(vault.clone(), &[]).await;
    let path = world.path("db");
    world.secret("db", &[("n", "0")], json!({ "vault-sync.io/path": path })).await;
    // Through renewals and several times past the longest life of a token.
    let mut round = 0;
    until("tokens are renewed and replaced", async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        round += 1;
        world.rotate("db", &[("n", &round.to_string())]).await;
        world.holds(&path, &[("n", &round.to_string())]).await;
        let counts = vault.login_counts();
        let is_enough = counts.succeeded >= 4 && counts.renewed >= 1;
        if is_enough { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    // No token ends by itself from now on.
    token_lifetime(&server, "1h", "1h").await;
    vault.close().await;
    world.rotate("db", &[("n", "before")]).await;
    world.holds(&path, &[("n", "before")]).await;
    let before = vault.login_counts().succeeded;
    server.request("PUT", "sys/leases/revoke-prefix/auth/approle", &json!(null)).await.unwrap();
    world.rotate("db", &[("n", "after")]).await;
    world.holds(&path, &[("n", "after")]).await;
    assert_eq!(vault.login_counts().succeeded, before + 1, "one login for all: {:?}", vault.login_counts());
    world.says(Kind::Secret, "db", "Synced").await;
    assert!((operator.metric("vault_sync_operator_vault_write_errors_total", "")).abs() < 0.5);
}

#[tokio::test]
async fn w16_a_sealed_vault_stops_nothing_but_readiness_and_what_changed_meanwhile_comes_after() {
    let server = server().await;
    let world = World::with(&server).await;
    let operator = world.operator(&[]).await;
    let path = world.path("db");
    world.secret("db", &[("n", "1")], json!({ "vault-sync.io/path": path })).await;
    world.says(Kind::Secret, "db", "Synced").await;
    until("it is ready", async || {
        let (code, text) = operator.get("/readyz").await;
        if code == 200 { Ok(()) } else { Err(text) }
    })
    .await;
    server.seal().await.unwrap();
    world.rotate("db", &[("n", "2")]).await;
    until("it is not ready", async || {
        let (code, text) = operator.get("/readyz").await;
        if code != 200 && text.contains("sealed") { Ok(()) } else { Err(text) }
    })
    .await;
    assert_eq!(operator.get("/healthz").await.0, 200, "a restart would not help");
    until("the object says why", async || {
        let record = world.record(Kind::Secret, "db").await.unwrap().to_string();
        if record.contains("is sealed") { Ok(()) } else { Err(record) }
    })
    .await;
    assert!(
        operator.metric("vault_sync_operator_vault_write_errors_total", "connection_failed") > 0.5,
        "also of the look before it"
    );
    server.unseal().await.unwrap();
    world.holds(&path, &[("n", "2")]).await;
    world.says(Kind::Secret, "db", "Synced").await;
    assert_eq!(world.versions(&path).await, 2);
}

/// Pauses that grow without a limit would exceed [`BACK_WITHIN`] after this time.
const AWAY: Duration = Duration::from_secs(21);
/// The time until everything is in Vault once Vault answers: the breaker asks after five seconds at the latest. Then come the writes, on a
/// machine that other tests share.
const BACK_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a20_after_a_sealed_vault_all_that_changed_is_written_within_seconds() {
    let server = server().await;
    let world = World::with(&server).await;
    let _operator = world.operator(&[]).await;
    let bound: Vec<_> = (0..20).map(|number| (format!("db-{number}"), world.path(&format!("db-{number}")))).collect();
    for (name, path) in &bound {
        world.secret(name, &[("n", "1")], json!({ "vault-sync.io/path": path })).await;
    }
    for (name, _) in &bound {
        world.says(Kind::Secret, name, "Synced").await;
    }
    server.seal().await.unwrap();
    // Each change is an attempt, and a pause that grew with attempts would be long by now.
    let begun = Instant::now();
    for change in 2..=8 {
        for (name, _) in &bound {
            world.rotate(name, &[("n", &change.to_string())]).await;
        }
        tokio::time::sleep_until(begun + AWAY * (change - 1) / 7).await;
    }
    server.unseal().await.unwrap();
    let back = Instant::now();
    for (_, path) in &bound {
        world.holds(path, &[("n", "8")]).await;
    }
    assert!(back.elapsed() <= BACK_WITHIN, "{:?}", back.elapsed());
}

/// The engine's figures tell of an outage: without them, dashboards and alerts of the framework show success.
#[tokio::test]
async fn each_run_that_fails_while_vault_is_away_is_an_error_to_the_engine() {
    let mut server = server().await;
    let world = World::with(&server).await;
    let operator = world.operator(&[]).await;
    let path = world.path("db");
    world.secret("db", &[("n", "1")], json!({ "vault-sync.io/path": path })).await;
    world.says(Kind::Secret, "db", "Synced").await;
    let errors = || operator.metric("controller_runtime_reconcile_errors_total", "controller=\"push\"");
    let failed_runs = || operator.metric("controller_runtime_reconcile_total", "result=\"error\"");
    assert!(errors() < 0.5 && failed_runs() < 0.5);
    server.kill();
    world.rotate("db", &[("n", "2")]).await;
    until("the engine counts two failed runs and their repetitions", async || {
        let retries = operator.metric("workqueue_retries_total", "name=\"push\"");
        let figures = (errors(), failed_runs(), retries);
        if errors() > 1.5 && failed_runs() > 1.5 && retries > 0.5 { Ok(()) } else { Err(format!("{figures:?}")) }
    })
    .await;
    assert!(operator.metric("konverge_reconcile_errors_total", "VaultUnreachable") > 0.5, "the reason is told");
    server.start_again().await.unwrap();
    server.unseal().await.unwrap();
    world.holds(&path, &[("n", "2")]).await;
    world.says(Kind::Secret, "db", "Synced").await;
    let after = errors();
    operator.settled().await;
    assert!(errors() < after + 0.5, "the failures end with the outage");
}

#[tokio::test]
async fn w16_it_starts_while_vault_is_away() {
    let mut server = server().await;
    let world = World::with(&server).await;
    server.kill();
    let operator = world.operator(&[]).await;
    world.secret("db", &[("n", "1")], json!({ "vault-sync.io/path": world.path("db") })).await;
    until("a run has failed", async || {
        let failed = operator.metric("controller_runtime_reconcile_errors_total", "controller=\"push\"");
        if failed > 0.5 { Ok(()) } else { Err(failed.to_string()) }
    })
    .await;
    assert_eq!(operator.get("/healthz").await.0, 200);
    server.start_again().await.unwrap();
    server.unseal().await.unwrap();
    world.holds(&world.path("db"), &[("n", "1")]).await;
}

#[tokio::test]
async fn w8_an_object_is_let_go_after_its_deadline_and_what_it_left_is_cleared_later() {
    let mut server = server().await;
    let world = World::with(&server).await;
    let operator = world.operator(&["--finalizer-deadline", "3s"]).await;
    let path = world.path("db");
    world.secret("db", &[("n", "1")], json!({ "vault-sync.io/path": path })).await;
    world.says(Kind::Secret, "db", "Synced").await;
    server.kill();
    world.delete(Kind::Secret, "db").await;
    world.gone(Kind::Secret, "db").await;
    let told = world.event("db", "ReleasedWithOrphans").await;
    assert!(told.contains(&path) && told.contains("vault-sync-operator-orphans"), "{told}");
    let orphans = Api::<ConfigMap>::namespaced(world.client.clone(), &world.home);
    let left = orphans.get("vault-sync-operator-orphans").await.unwrap().data.unwrap();
    assert!(left.len() == 1 && left.values().all(|text| text.contains(&path)), "{left:?}");
    // The replica that works then looks after the rest.
    operator.stop().await;
    server.start_again().await.unwrap();
    server.unseal().await.unwrap();
    assert!(world.read(&path).await.is_some());
    let _operator = world.operator(&[]).await;
    world.is_deleted(&path).await;
    until("nothing is left to be remembered", async || {
        let left = orphans.get("vault-sync-operator-orphans").await.unwrap().data.unwrap_or_default();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test]
async fn w8_what_is_kept_is_let_go_at_once() {
    let mut server = server().await;
    let world = World::with(&server).await;
    let operator = world.operator(&[]).await;
    let annotations = json!({ "vault-sync.io/path": world.path("db"), "vault-sync.io/preserve-on-delete": "true" });
    world.secret("db", &[("n", "1")], annotations).await;
    world.says(Kind::Secret, "db", "Synced").await;
    server.kill();
    world.delete(Kind::Secret, "db").await;
    world.gone(Kind::Secret, "db").await;
    // Its mark would keep others from the path.
    operator.stop().await;
    server.start_again().await.unwrap();
    server.unseal().await.unwrap();
    let path = world.path("db");
    assert!(!world.marks(&path).await.is_empty());
    let _operator = world.operator(&[]).await;
    until("the mark is gone", async || {
        let marks = world.marks(&path).await;
        if marks.is_empty() { Ok(()) } else { Err(format!("{marks:?}")) }
    })
    .await;
    world.holds(&path, &[("n", "1")]).await;
}

#[tokio::test]
async fn w8_an_object_is_let_go_though_there_is_no_room_to_remember_what_it_left() {
    let mut server = server().await;
    let world = World::with(&server).await;
    let _operator = world.operator(&["--finalizer-deadline", "3s"]).await;
    let path = world.path("db");
    world.secret("db", &[("n", "1")], json!({ "vault-sync.io/path": path })).await;
    world.says(Kind::Secret, "db", "Synced").await;
    let full = json!({ "metadata": { "name": "vault-sync-operator-orphans" }, "data": { "full": "x".repeat(1024 * 1024 - 50) } });
    let orphans = Api::<ConfigMap>::namespaced(world.client.clone(), &world.home);
    orphans.create(&PostParams::default(), &serde_json::from_value(full).unwrap()).await.unwrap();
    server.kill();
    world.delete(Kind::Secret, "db").await;
    world.gone(Kind::Secret, "db").await;
    let told = world.event("db", "ReleasedWithOrphans").await;
    assert!(told.contains(&path) && told.contains("could not be recorded"), "{told}");
}

#[tokio::test]
async fn w8_an_object_is_let_go_whose_secret_may_not_be_read_any_more() {
    let server = server().await;
    let world = World::with(&server).await;
    server.policy("look", "path \"secret/*\" { capabilities = [\"read\"] }").await.unwrap();
    let token = server.token(&["look", "default"], json!({ "ttl": "1h" })).await.unwrap();
    let vault = Vault::new(&vault_config(&server, &token));
    let _operator = world.operator_with(vault, &["--finalizer-deadline", "3s"]).await;
    world.secret("db", &[("n", "1")], json!({})).await;
    // Begun and not written: what that would have made tells whose the path is.
    world.workload(Kind::Deployment, "app", &["db"], json!({ "vault-sync.io/path": world.path("app") })).await;
    world.says(Kind::Deployment, "app", "PermissionDenied").await;
    world.may_not_get_secrets().await;
    world.delete(Kind::Deployment, "app").await;
    world.gone(Kind::Deployment, "app").await;
    let told = world.event("app", "ReleasedWithOrphans").await;
    assert!(told.contains(&world.path("app")), "{told}");
}

#[tokio::test]
async fn x7_a_namespace_that_goes_while_vault_is_away_is_not_held_up() {
    let mut server = server().await;
    let world = World::with(&server).await;
    let _operator = world.operator(&["--terminating-namespace-deadline", "3s"]).await;
    world.secret("db", &[("n", "1")], json!({ "vault-sync.io/path": world.path("db") })).await;
    world.says(Kind::Secret, "db", "Synced").await;
    server.kill();
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(world.client.clone());
    namespaces.delete(&world.namespace, &DeleteParams::default()).await.unwrap();
    // There is no namespace controller here, which would delete what is in it.
    world.delete(Kind::Secret, "db").await;
    world.gone(Kind::Secret, "db").await;
}

#[tokio::test]
async fn a_path_that_is_denied_says_so_and_delays_no_other() {
    let server = server().await;
    let world = World::with(&server).await;
    let allowed = world.path("open");
    let rules = format!(
        "path \"secret/*\" {{ capabilities = [\"read\"] }}\npath \"{allowed}/*\" {{ capabilities = [\"create\", \"read\", \"update\", \"delete\"] }}"
    );
    server.policy("some", &rules).await.unwrap();
    let token = server.token(&["some", "default"], json!({ "ttl": "1h" })).await.unwrap();
    let operator = world.operator_with(Vault::new(&vault_config(&server, &token)), &[]).await;
    world.secret("open", &[("n", "1")], json!({ "vault-sync.io/path": format!("{allowed}/a") })).await;
    world.secret("closed", &[("n", "1")], json!({ "vault-sync.io/path": world.path("closed") })).await;
    world.holds(&format!("{allowed}/a"), &[("n", "1")]).await;
    let told = world.says(Kind::Secret, "closed", "PermissionDenied").await;
    assert!(told.contains("policy") && told.contains(&world.path("closed")), "{told}");
    let attempts = |resource: &str, result: &str| {
        let label = format!("resource=\"{resource}\",result=\"{result}\"");
        operator.metric("vault_sync_operator_sync_attempts_total", &label) > 0.5
    };
    assert!(attempts("closed", "failed") && !attempts("closed", "success"), "a run that did not sync it is no success");
    assert!(operator.metric("vault_sync_operator_vault_write_errors_total", "permission_denied") > 0.5);
    assert!(operator.metric("konverge_reconcile_errors_total", "PermissionDenied") > 0.5, "nor to the engine");
    // Marks need more than this policy gives. The content is in sync without them.
    world.says(Kind::Secret, "open", "Synced").await;
    let told = world.event("open", "OwnerNotMarked").await;
    assert!(told.contains("metadata"), "{told}");
    world.rotate("open", &[("n", "2")]).await;
    world.holds(&format!("{allowed}/a"), &[("n", "2")]).await;
    world.delete(Kind::Secret, "open").await;
    world.gone(Kind::Secret, "open").await;
    assert_eq!(world.read(&format!("{allowed}/a")).await, None);
}

#[tokio::test]
async fn the_event_of_a_path_that_is_denied_is_renewed_for_as_long_as_it_is() {
    let server = server().await;
    let world = World::with(&server).await;
    server.policy("read-only", "path \"secret/*\" { capabilities = [\"read\"] }").await.unwrap();
    let token = server.token(&["read-only", "default"], json!({ "ttl": "1h" })).await.unwrap();
    let _operator = world.operator_with(Vault::new(&vault_config(&server, &token)), &[]).await;
    let path = world.path("closed");
    // A refused path is retried as often as the object requests.
    let often = json!({ "vault-sync.io/path": path, "vault-sync.io/reconcile": "1s" });
    world.secret("closed", &[("n", "1")], often).await;
    world.says(Kind::Secret, "closed", "PermissionDenied").await;
    let count = world.renewed("closed", "PermissionDenied").await;
    assert!(count >= 2, "{count}");
    // Each attempt renews the one event, and none makes another.
    let told = world.notes("closed").await;
    assert_eq!(told.iter().filter(|note| note.contains("policy") && note.contains(&path)).count(), 1, "{told:?}");
    let rules = "path \"secret/*\" { capabilities = [\"create\", \"read\", \"update\", \"patch\"] }";
    server.policy("read-only", rules).await.unwrap();
    world.holds(&path, &[("n", "1")]).await;
    world.says(Kind::Secret, "closed", "Synced").await;
}

#[tokio::test]
async fn w10_drift_is_put_right_and_told_also_where_another_path_of_the_object_is_refused() {
    let server = server().await;
    let world = World::with(&server).await;
    let (open, closed) = (world.path("app/db"), world.path("app/api"));
    let rules = format!(
        "path \"secret/*\" {{ capabilities = [\"create\", \"read\", \"update\", \"patch\"] }}\npath \"{closed}\" {{ capabilities = [\"deny\"] }}"
    );
    server.policy("but-one", &rules).await.unwrap();
    let token = server.token(&["but-one", "default"], json!({ "ttl": "1h" })).await.unwrap();
    let operator = world.operator_with(Vault::new(&vault_config(&server, &token)), &[]).await;
    for name in ["db", "api"] {
        world.secret(name, &[("n", "1")], json!({})).await;
    }
    world.workload(Kind::Deployment, "app", &["db", "api"], json!({ "vault-sync.io/path": world.path("app") })).await;
    world.says(Kind::Deployment, "app", "PermissionDenied").await;
    world.holds(&open, &[("n", "1")]).await;
    world.rotate("db", &[("n", "2")]).await;
    until("what is written is noted", async || {
        let record = world.record(Kind::Deployment, "app").await.ok_or("no record")?;
        let version = &record["paths"][&open]["version"];
        if *version == 2 { Ok(()) } else { Err(version.to_string()) }
    })
    .await;
    let drift = || operator.metric("konverge_push_drift_total", "");
    assert!(drift() < 0.5, "its own change is no drift");

    world.write(&open, &[("n", "somebody's")]).await;
    world.annotate(Kind::Deployment, "app", json!({ "vault-sync.io/sync-now": "1" })).await;
    world.holds(&open, &[("n", "2")]).await;
    let told = world.event("app", "DriftCorrected").await;
    assert!(told.contains(&open), "{told}");
    assert!(drift() > 0.5);
}

#[tokio::test]
async fn w19_a_deletion_that_fails_is_counted() {
    let server = server().await;
    let world = World::with(&server).await;
    let rules = "path \"secret/*\" { capabilities = [\"create\", \"read\", \"update\", \"patch\"] }";
    server.policy("no-delete", rules).await.unwrap();
    let token = server.token(&["no-delete", "default"], json!({ "ttl": "1h" })).await.unwrap();
    let vault = Vault::new(&vault_config(&server, &token));
    let operator = world.operator_with(vault, &["--finalizer-deadline", "1s"]).await;
    let path = world.path("db");
    world.secret("db", &[("n", "1")], json!({ "vault-sync.io/path": path })).await;
    world.says(Kind::Secret, "db", "Synced").await;
    let failed = || operator.metric("konverge_push_vault_delete_errors_total", "");
    assert!(failed() < 0.5);
    world.delete(Kind::Secret, "db").await;
    world.gone(Kind::Secret, "db").await;
    assert!(failed() > 0.5);
    world.holds(&path, &[("n", "1")]).await;
}

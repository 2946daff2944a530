//! Secrets filled from a real Vault by one annotation.

use std::time::Duration;

use clap::Parser;
use konverge_pull::config::Config;
use konverge_testkit_stores::{HttpFront, VaultOptions, VaultServer};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{Operator, World, until};

/// How often the operator asks for each path here.
const INTERVAL: Duration = Duration::from_secs(1);

/// A Vault behind a front that keeps a journal, a namespace, and a token that may read what is beneath `secret/` and `old/`.
struct Stage {
    vault: VaultServer,
    front: HttpFront,
    token: String,
    world: World,
}

impl Stage {
    async fn new() -> Self {
        let vault = VaultServer::start(VaultOptions::default()).await.unwrap();
        vault.mount_kv("secret", 2).await.unwrap();
        vault.mount_kv("old", 1).await.unwrap();
        let rules = r#"path "secret/*" { capabilities = ["read"] } path "old/*" { capabilities = ["read"] }"#;
        vault.policy("pull", rules).await.unwrap();
        let token = vault.token(&["pull"], json!({})).await.unwrap();
        let front = HttpFront::start(vault.address()).await.unwrap();
        Self { vault, front, token, world: World::new().await }
    }

    /// Starts an operator of this Vault alone, which lets every namespace read everything in it.
    async fn operator(&self) -> Operator {
        self.operator_with(&["--allow", "*=vault://secret/*,*=vault://old/*"]).await
    }

    async fn operator_with(&self, arguments: &[&str]) -> Operator {
        let file = self.vault.run_directory().path().join("token");
        std::fs::write(&file, &self.token).unwrap();
        let url = self.front.url();
        let vault = ["--vault-addr", &url, "--vault-token-file", file.to_str().unwrap(), "--vault-interval", "1s"];
        self.world.restarted_without_zopp(&[&vault, arguments].concat()).await
    }

    async fn write(&self, path: &str, fields: Value) {
        let body = if path.starts_with("old/") { fields } else { json!({ "data": fields }) };
        self.vault.request("POST", path, &body).await.unwrap();
    }

    async fn bind(&self, name: &str, from: &str) {
        self.world.annotate(name, json!({ "pull.konverge.dev/from": from })).await;
    }

    /// Returns the number of requests for this path since then.
    fn requests(&self, since: usize, path: &str) -> usize {
        self.front
            .since(since)
            .iter()
            .filter(|seen| seen.path.trim_start_matches("/v1/").split('?').next() == Some(path))
            .count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_in_vault_is_in_each_secret_within_the_interval_and_a_second() {
    let stage = Stage::new().await;
    stage.write("secret/data/team-a/db", json!({ "USER": "app", "PORT": 5432, "TLS": { "on": true } })).await;
    stage.write("old/db", json!({ "USER": "former" })).await;
    for name in ["one", "two"] {
        stage.bind(name, "vault://secret/team-a/db").await;
    }
    stage.bind("old", "vault://old/db").await;
    let operator = stage.operator().await;
    for name in ["one", "two"] {
        stage.world.holds(name, &[("PORT", "5432"), ("TLS", r#"{"on":true}"#), ("USER", "app")]).await;
    }
    stage.world.holds("old", &[("USER", "former")]).await;
    assert!(stage.world.told("one", "Synced").await.contains("vault://secret/team-a/db"));

    stage.write("secret/data/team-a/db", json!({ "USER": "other" })).await;
    stage.write("old/db", json!({ "USER": "another" })).await;
    let changed = Instant::now();
    for (name, user) in [("one", "other"), ("two", "other"), ("old", "another")] {
        stage.world.holds(name, &[("USER", user)]).await;
    }
    let late = changed.elapsed();
    assert!(
        late < (INTERVAL + Duration::from_secs(1)) * 3,
        "within an interval and a second on an idle machine, {late:?} here"
    );
    stage.world.stays("one", &[&operator]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_secrets_of_one_path_cost_one_question_in_an_interval_and_one_read_for_each_version() {
    let stage = Stage::new().await;
    stage.write("secret/data/shared", json!({ "A": "1" })).await;
    let names: Vec<_> = (0..20).map(|number| format!("s-{number}")).collect();
    for name in &names {
        stage.bind(name, "vault://secret/shared").await;
    }
    let operator = stage.operator().await;
    for name in &names {
        stage.world.holds(name, &[("A", "1")]).await;
    }
    operator.settled().await;
    let (before, began) = (stage.front.count(), Instant::now());
    stage.write("secret/data/shared", json!({ "A": "2" })).await;
    for name in &names {
        stage.world.holds(name, &[("A", "2")]).await;
    }
    operator.settled().await;
    let intervals = began.elapsed().as_secs_f64() / INTERVAL.div_f64(1.1).as_secs_f64();
    assert_eq!(stage.requests(before, "secret/data/shared"), 1, "reads of the new version");
    // A question comes up to a tenth of an interval early.
    let questions = u32::try_from(stage.requests(before, "secret/metadata/shared")).unwrap();
    assert!(f64::from(questions) <= intervals / 0.9 + 1.0, "{questions} questions in {intervals} intervals");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_in_vault_is_told_and_takes_nothing_away() {
    let stage = Stage::new().await;
    stage.write("secret/data/db", json!({ "A": "1" })).await;
    stage.bind("db", "vault://secret/db").await;
    let operator = stage.operator().await;
    stage.world.holds("db", &[("A", "1")]).await;

    stage.vault.request("DELETE", "secret/data/db", &Value::Null).await.unwrap();
    stage.world.told_of("db", "VersionDeleted", "version 1 of secret/data/db is deleted").await;
    stage.world.holds("db", &[("A", "1")]).await;
    stage.vault.request("POST", "secret/undelete/db", &json!({ "versions": [1] })).await.unwrap();
    stage.world.is_renewed("db", "Synced").await;

    stage.vault.request("PUT", "secret/destroy/db", &json!({ "versions": [1] })).await.unwrap();
    stage.world.told_of("db", "VersionDeleted", "is destroyed").await;
    // Versions of a secret that is created again begin at 1.
    stage.write("secret/data/db", json!({ "A": "2" })).await;
    stage.world.holds("db", &[("A", "2")]).await;
    stage.vault.request("DELETE", "secret/metadata/db", &Value::Null).await.unwrap();
    stage.world.told_of("db", "SecretNotFound", "secret/data/db").await;
    stage.world.holds("db", &[("A", "2")]).await;
    stage.write("secret/data/db", json!({ "A": "3" })).await;
    stage.world.holds("db", &[("A", "3")]).await;
    stage.world.stays("db", &[&operator]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_version_stays() {
    let stage = Stage::new().await;
    for value in ["1", "2", "3"] {
        stage.write("secret/data/db", json!({ "A": value })).await;
    }
    stage.bind("pinned", "vault://secret/db?version=2").await;
    stage.bind("missing", "vault://secret/db?version=9").await;
    stage.bind("unversioned", "vault://old/db?version=1").await;
    let operator = stage.operator().await;
    stage.world.holds("pinned", &[("A", "2")]).await;
    stage.world.told_of("missing", "SecretNotFound", "no version 9").await;
    stage.world.told_of("unversioned", "InvalidAnnotation", "version 1").await;
    stage.write("secret/data/db", json!({ "A": "4" })).await;
    stage.world.stays("pinned", &[&operator]).await;
    stage.vault.request("DELETE", "secret/data/db", &Value::Null).await.unwrap();
    stage.world.stays("pinned", &[&operator]).await;
    stage.vault.request("POST", "secret/delete/db", &json!({ "versions": [2] })).await.unwrap();
    stage.world.told_of("pinned", "VersionDeleted", "version 2").await;
    stage.world.holds("pinned", &[("A", "2")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vault_needs_a_rule_a_path_has_one_spelling_and_a_secret_one_source() {
    let stage = Stage::new().await;
    stage.write("secret/data/other-team/db", json!({ "A": "1" })).await;
    let namespace = stage.world.namespace.clone();
    stage.write(&format!("secret/data/{namespace}/db"), json!({ "A": "own" })).await;
    let closed = stage.operator_with(&[]).await;
    stage.bind("own", &format!("vault://secret/{namespace}/db")).await;
    stage.world.told_of("own", "NotAllowed", &format!("--allow '{namespace}=vault://secret/{namespace}/db'")).await;
    closed.stop().await;

    let operator = stage.operator_with(&["--allow", "*=vault://secret/{namespace}/*,*=vault://secret/data/*"]).await;
    stage.world.holds("own", &[("A", "own")]).await;
    for (name, from) in [("foreign", "vault://secret/other-team/db"), ("administrative", "vault://sys/raw")] {
        stage.bind(name, from).await;
        stage.world.told(name, "NotAllowed").await;
    }
    // The rule for the folder `data` is none for what Vault means by this spelling.
    stage.bind("spelled", "vault://secret/data/other-team/db").await;
    stage.world.told_of("spelled", "InvalidAnnotation", "vault://secret/other-team/db, without data/").await;
    for (name, from, cause) in
        [("relative", "vault://secret/../sys/raw", "`..`"), ("plain", "secret/db", "it has no ://")]
    {
        stage.bind(name, from).await;
        stage.world.told_of(name, "InvalidAnnotation", cause).await;
    }
    stage.bind("zopp", "zopp://acme/backend/production").await;
    stage.world.told_of("zopp", "SourceNotConnected", "--credentials").await;
    let both = json!({ "zopp.dev/sync": "true", "pull.konverge.dev/from": format!("vault://secret/{namespace}/db") });
    stage.world.annotate("both", both).await;
    stage.world.told_of("both", "InvalidAnnotation", "one source").await;
    for name in ["foreign", "spelled", "relative", "administrative", "plain", "zopp", "both"] {
        stage.world.holds(name, &[]).await;
    }
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vault_that_is_away_takes_nothing_and_is_found_again() {
    let mut stage = Stage::new().await;
    stage.write("secret/data/db", json!({ "A": "1" })).await;
    stage.write("secret/data/denied", json!({ "A": "1" })).await;
    let rules = r#"path "secret/data/db" { capabilities = ["read"] }"#;
    stage.vault.policy("narrow", rules).await.unwrap();
    stage.token = stage.vault.token(&["narrow"], json!({})).await.unwrap();
    stage.bind("db", "vault://secret/db").await;
    stage.bind("denied", "vault://secret/denied").await;
    let operator = stage.operator().await;
    stage.world.holds("db", &[("A", "1")]).await;
    stage.world.told("denied", "PermissionDenied").await;
    stage.vault.seal().await.unwrap();
    stage.world.told("db", "ServerUnreachable").await;
    stage.world.holds("db", &[("A", "1")]).await;
    stage.vault.unseal().await.unwrap();
    stage.write("secret/data/db", json!({ "A": "2" })).await;
    stage.world.holds("db", &[("A", "2")]).await;
    // A policy that is written meanwhile is noticed without a change of the Secret.
    let rules = r#"path "secret/*" { capabilities = ["read"] }"#;
    stage.vault.policy("narrow", rules).await.unwrap();
    stage.world.holds("denied", &[("A", "1")]).await;
    stage.world.stays("denied", &[&operator]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_moves_from_zopp_to_vault_and_keeps_nothing_of_the_former() {
    let (world, _scene, operator) = World::in_sync().await;
    operator.stop().await;
    let vault = VaultServer::start(VaultOptions::default()).await.unwrap();
    vault.mount_kv("secret", 2).await.unwrap();
    vault.request("POST", "secret/data/db", &json!({ "data": { "B": "2" } })).await.unwrap();
    let file = vault.run_directory().path().join("token");
    std::fs::write(&file, vault.root_token()).unwrap();
    let arguments = [
        "--vault-addr",
        vault.address(),
        "--vault-token-file",
        file.to_str().unwrap(),
        "--allow",
        "*=vault://secret/*",
    ];
    let operator = world.operator(&arguments).await;
    world.holds("backend", &[("A", "1")]).await;
    world.annotate("backend", json!({ "pull.konverge.dev/from": "vault://secret/db" })).await;
    world.holds("backend", &[("B", "2")]).await;
    until("the record of zopp is gone", async || world.record("backend").await.map_or(Ok(()), Err)).await;
    world.stays("backend", &[&operator]).await;
}

#[test]
fn the_flags_of_vault_are_those_of_the_other_operators() {
    let line = ["zopp-operator", "--vault-addr", "http://v:8200", "--vault-role", "r", "--vault-auth-path", "k8s/a"];
    let flags = Config::try_parse_from(line).unwrap().vault.flags().unwrap();
    assert_eq!((&*flags.role, &*flags.mount, &*flags.address), ("r", "k8s/a", "http://v:8200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_state_is_refused_after_a_restart_until_the_secret_is_written_again() {
    // A Vault that was restored from a backup is one that has not seen the later writes.
    let restored = Stage::new().await;
    restored.write("secret/data/db", json!({ "A": "old" })).await;
    let stage = Stage::new().await;
    stage.write("secret/data/db", json!({ "A": "1" })).await;
    stage.write("secret/data/db", json!({ "A": "2" })).await;
    stage.bind("db", "vault://secret/db").await;
    let operator = stage.operator().await;
    stage.world.holds("db", &[("A", "2")]).await;
    drop(operator);

    let stage = Stage { world: stage.world, ..restored };
    let _operator = stage.operator().await;
    let text = stage.world.told("db", "SourceWentBack").await;
    assert!(text.contains("write the secret there again"), "{text}");
    stage.world.holds("db", &[("A", "2")]).await;
    stage.write("secret/data/db", json!({ "A": "3" })).await;
    stage.world.holds("db", &[("A", "3")]).await;
    stage.vault.request("DELETE", "secret/metadata/db", &json!({})).await.unwrap();
    stage.write("secret/data/db", json!({ "A": "4" })).await;
    stage.world.holds("db", &[("A", "4")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_paused_and_compared_at_once_on_request() {
    let stage = Stage::new().await;
    stage.write("secret/data/db", json!({ "A": "1" })).await;
    let from = json!({ "pull.konverge.dev/from": "vault://secret/db" });
    let with = |name: &str, value: &str| {
        let mut annotations = from.clone();
        annotations[name] = value.into();
        annotations
    };
    stage.world.annotate("db", from.clone()).await;
    let operator = stage.operator().await;
    stage.world.holds("db", &[("A", "1")]).await;
    stage.world.annotate("db", with("pull.konverge.dev/pause", "true")).await;
    assert!(stage.world.told("db", "Paused").await.contains("Remove it to go on"));
    stage.write("secret/data/db", json!({ "A": "2" })).await;
    tokio::time::sleep(2 * INTERVAL).await;
    stage.world.holds("db", &[("A", "1")]).await;
    stage.world.annotate("db", from.clone()).await;
    stage.world.holds("db", &[("A", "2")]).await;

    for value in ["one", "two"] {
        // A comparison that is under way would answer the request, too.
        operator.settled().await;
        let before = stage.front.count();
        stage.world.annotate("db", with("pull.konverge.dev/sync-now", value)).await;
        until("Vault is read", async || match stage.requests(before, "secret/data/db") {
            0 => Err("not yet".to_owned()),
            _ => Ok(()),
        })
        .await;
    }
}

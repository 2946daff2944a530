//! The status of the object, its deletion, and the installation of its kind.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_core::SecretValue;
use konverge_push::object::Kind::{Secret, VaultPush};
use konverge_testkit::{ControlPlane, Options};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use konverge_vault::{Credential, Limits, Login, Vault, VaultConfig};
use kube::Api;
use serde_json::{Value, json};

use crate::world::{DEFINITION, World, until};

/// Conditions by their types: whether, and why.
async fn conditions(world: &World, name: &str) -> Vec<(String, String, String)> {
    let object = world.api(VaultPush).get(name).await.unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let generation = object.metadata.generation;
    assert!(
        conditions.iter().all(|condition| condition["observedGeneration"].as_i64() == generation),
        "{conditions:?}"
    );
    conditions.iter().map(|said| (text(&said["type"]), text(&said["status"]), text(&said["reason"]))).collect()
}

fn are(conditions: &[(String, String, String)], expected: &[(&str, &str, &str)]) {
    let said: Vec<_> = conditions.iter().map(|(kind, status, reason)| (&**kind, &**status, &**reason)).collect();
    assert_eq!(said, expected);
}

/// The table that `kubectl get` prints: its columns, those for everybody first, and the only row.
async fn table(world: &World) -> (Vec<(String, i64)>, Vec<Value>) {
    let path = format!("/apis/konverge.dev/v1alpha1/namespaces/{}/vaultpushes", world.namespace);
    let request = http::Request::get(path).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = world.client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let columns =
        columns.map(|column| (column["name"].as_str().unwrap().to_owned(), column["priority"].as_i64().unwrap()));
    (columns.collect(), table["rows"][0]["cells"].as_array().unwrap().clone())
}

#[tokio::test]
async fn conditions_and_columns_tell_how_it_stands_and_of_which_generation() {
    let world = World::new().await;
    let operator = world.operator(&["--allow-path", "*=secret/data/{namespace}/*"]).await;
    let path = world.path("db");
    let spec = |path: &str| json!({ "secrets": { "names": ["db"] }, "path": path });
    world.vault_push("push", spec(&path)).await;
    world.says(VaultPush, "push", "SecretNotFound").await;
    let missing = "SecretNotFound";
    are(&conditions(&world, "push").await, &[("Ready", "False", missing), ("Reconciling", "True", missing)]);
    world.secret("db", &[("n", "1")], json!({})).await;
    world.says(VaultPush, "push", "Synced").await;
    are(&conditions(&world, "push").await, &[("Ready", "True", "Synced")]);
    let (columns, cells) = table(&world).await;
    let names: Vec<_> = columns.iter().map(|(name, priority)| (&**name, *priority)).collect();
    assert_eq!(
        names,
        [
            ("Name", 0),
            ("Ready", 0),
            ("Reason", 0),
            ("Written", 0),
            ("Paths", 0),
            ("Last Verified", 0),
            ("Path", 1),
            ("Age", 0)
        ]
    );
    assert_eq!(cells[..5], [json!("push"), json!("True"), json!("Synced"), json!(1), json!(1)]);
    assert_eq!(Some(cells[6].as_str().unwrap()), path.strip_prefix("secret/data/"));
    let status = world.api(VaultPush).get("push").await.unwrap().data["status"].clone();
    assert_eq!(
        status["paths"],
        json!([{ "location": path, "mount": "secret", "kv": 2, "written": true, "version": 1 }])
    );

    world.vault_push("push", spec("secret/data/another-team/db")).await;
    let told = world.says(VaultPush, "push", "PathNotAllowed").await;
    assert!(told.contains("Vault stays as it is"), "{told}");
    are(
        &conditions(&world, "push").await,
        &[("Ready", "False", "PathNotAllowed"), ("Stalled", "True", "PathNotAllowed")],
    );
    world.vault_push("push", spec(&path)).await;
    world.says(VaultPush, "push", "Synced").await;
    world.holds(&path, &[("n", "1")]).await;
    let mut paused = spec(&path);
    paused["suspend"] = true.into();
    world.vault_push("push", paused.clone()).await;
    let told = world.says(VaultPush, "push", "Paused").await;
    assert!(told.contains("spec.suspend"), "{told}");
    world.rotate("db", &[("n", "2")]).await;
    operator.settled().await;
    world.holds(&path, &[("n", "1")]).await;
    world.vault_push("push", spec(&path)).await;
    world.holds(&path, &[("n", "2")]).await;
    world.says(VaultPush, "push", "Synced").await;
    // A change of the generation alone is observed, too.
    let mut spelled_out = spec(&path);
    spelled_out["updatePolicy"] = "Replace".into();
    spelled_out["keyPrefix"] = "".into();
    world.vault_push("push", spelled_out).await;
    until("the generation is observed", async || {
        let object = world.api(VaultPush).get("push").await.unwrap();
        let observed = object.data["status"]["observedGeneration"].as_i64();
        if observed == object.metadata.generation { Ok(()) } else { Err(format!("{observed:?}")) }
    })
    .await;
    are(&conditions(&world, "push").await, &[("Ready", "True", "Synced")]);
}

#[tokio::test]
async fn a_status_that_somebody_empties_is_written_again() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    world.secret("db", &[("n", "1")], json!({})).await;
    world.vault_push("push", json!({ "secrets": { "names": ["db"] }, "path": world.path("db") })).await;
    world.says(VaultPush, "push", "Synced").await;
    let patch = kube::api::Patch::Merge(json!({ "status": null }));
    let emptied = world.api(VaultPush).patch_status("push", &kube::api::PatchParams::default(), &patch).await.unwrap();
    assert!(emptied.data["status"].is_null(), "{:?}", emptied.data);
    world.says(VaultPush, "push", "Synced").await;
    assert_eq!(world.versions(&world.path("db")).await, 1);
}

#[tokio::test]
async fn p15_an_identity_that_goes_first_holds_nothing_up_and_what_is_left_is_cleared_later() {
    let server = VaultServer::start(VaultOptions::default()).await.unwrap();
    server.mount_kv("secret", 2).await.unwrap();
    let world = World::with(&server).await;
    let rules = "path \"secret/*\" { capabilities = [\"create\", \"read\", \"update\", \"patch\", \"delete\"] }";
    server.policy("push", rules).await.unwrap();
    let token = server.token(&["push"], json!({})).await.unwrap();
    let credential = Credential::value(SecretValue::from(token.clone()));
    let limits = Limits::default().with(|limits| limits.deadline = Duration::from_secs(5));
    let config = VaultConfig::new(server.address(), Login::Token(credential)).unwrap().limits(limits);
    let deadlines = ["--finalizer-deadline", "3s", "--terminating-namespace-deadline", "2s"];
    let operator = world.operator_with(Vault::new(&config), &deadlines).await;
    let (whole, shared) = (world.path("whole"), world.path("shared"));
    world.secret("db", &[("n", "1")], json!({})).await;
    world.write(&shared, &[("by", "hand")]).await;
    for (name, path, policy) in [("whole", &whole, "Replace"), ("shared", &shared, "Merge")] {
        let spec = json!({ "secrets": { "names": ["db"] }, "path": path, "updatePolicy": policy });
        world.vault_push(name, spec).await;
        world.says(VaultPush, name, "Synced").await;
    }
    server.request("POST", "auth/token/revoke", &json!({ "token": token })).await.unwrap();
    for name in ["whole", "shared"] {
        world.delete(VaultPush, name).await;
        world.gone(VaultPush, name).await;
    }
    world.holds(&whole, &[("n", "1")]).await;
    let orphans = Api::<ConfigMap>::namespaced(world.client.clone(), &world.home);
    let left = orphans.get("vault-sync-operator-orphans").await.unwrap().data.unwrap();
    assert_eq!(left.len(), 2, "{left:?}");
    operator.stop().await;
    // A namespace that is let in.
    let _operator = world.operator(&[]).await;
    world.is_deleted(&whole).await;
    world.holds(&shared, &[("by", "hand")]).await;
}

#[tokio::test]
async fn it_takes_part_as_soon_as_its_kind_is_known_and_its_absence_hurts_nobody() {
    let control_plane: &'static ControlPlane = Box::leak(Box::new(ControlPlane::start(Options::ours()).await.unwrap()));
    let server = VaultServer::start(VaultOptions::default()).await.unwrap();
    server.mount_kv("secret", 2).await.unwrap();
    let world = World::on(control_plane, &server).await;
    let operator = world.operator(&[]).await;
    world.secret("db", &[("n", "1")], json!({ "vault-sync.io/path": world.path("annotated") })).await;
    world.says(Secret, "db", "Synced").await;
    until("it is ready", async || {
        let (code, text) = operator.get("/readyz").await;
        if code == 200 { Ok(()) } else { Err(text) }
    })
    .await;
    control_plane.apply(DEFINITION).await.unwrap();
    world.vault_push("push", json!({ "secrets": { "names": ["db"] }, "path": world.path("declared") })).await;
    world.holds(&world.path("declared"), &[("n", "1")]).await;
    world.says(VaultPush, "push", "Synced").await;
}

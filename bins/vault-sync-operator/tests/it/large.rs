//! What somebody makes large on purpose: it takes no memory that others need, and says why it is not written.

use konverge_push::desired::LARGEST;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::stage::{Stage, View, until};

/// Nearly what a Secret holds at most.
const LARGE: usize = 900 << 10;

/// So much more than before the operator may take in the end: far more than it needs for one path, and far less than what is asked for.
const ROOM: f64 = 96.0 * 1024.0 * 1024.0;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_multiplied_in_templates_and_lists_is_not_made_and_a_neighbour_notices_nothing() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("large").await.unwrap();
    let view = stage.view(&namespace).await;
    let neighbour = view.path("neighbour");
    view.secret("neighbour", &[("n", "0")], Some(&neighbour)).await.unwrap();
    let operator = stage.start(&namespace, |spec| spec).await;
    until("the neighbour is in step", async || view.is_synced("Secret", "neighbour", &[&neighbour]).await).await;
    let before = operator.process.resident().unwrap();

    view.secret("small", &[("k", "v")], None).await.unwrap();
    view.secret("big", &[("k", &"x".repeat(LARGE))], None).await.unwrap();
    // These would take 90 to 270 MB each.
    let texts = json!({ "t": "${k}".repeat(300) });
    let one = json!({ "secrets": { "names": ["big"] }, "path": view.path("one"), "templates": texts });
    push(&view, "one", one).await;
    let keys: Vec<Value> = (0..100).map(|number| json!({ "from": "k", "to": format!("k-{number}") })).collect();
    push(&view, "keys", json!({ "secrets": { "names": ["big"] }, "path": view.path("keys"), "keys": keys })).await;
    let apart =
        json!({ "secrets": { "names": ["big", "small"] }, "path": view.path("apart/{secret}"), "templates": texts });
    push(&view, "apart", apart).await;
    let entries: Vec<Value> =
        (0..300).map(|number| json!({ "name": "big", "keys": ["k"], "prefix": number.to_string() })).collect();
    view.secret("list", &[("k", "v")], Some(&view.path("list"))).await.unwrap();
    let list = json!({ "vault-sync.io/secrets": Value::from(entries).to_string() });
    view.annotate("Secret", "list", list).await.unwrap();

    for (step, (kind, name)) in
        [("VaultPush", "one"), ("VaultPush", "keys"), ("VaultPush", "apart"), ("Secret", "list")]
            .into_iter()
            .enumerate()
    {
        until(name, async || {
            let record = view.record(kind, name).await?.unwrap_or_default();
            let why = record["message"].as_str().unwrap_or_default();
            Ok(record["state"] == "ContentTooLarge" && why.contains(&LARGEST.to_string()))
        })
        .await;
        let value = (step + 1).to_string();
        view.secret("neighbour", &[("n", &value)], Some(&neighbour)).await.unwrap();
        until("the neighbour follows", async || view.holds(&neighbour, "n", &value).await).await;
    }
    assert_eq!(view.read(&view.path("apart/small")).await.unwrap().unwrap()["t"], "v".repeat(300), "its other path");
    for path in ["one", "keys", "apart/big"] {
        assert_eq!(view.read(&view.path(path)).await.unwrap(), None, "{path}");
    }
    let more = operator.process.resident().unwrap() - before;
    assert!(more < ROOM, "{more} bytes more than {before}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_secrets_with_paths_of_their_own_are_written_one_after_another() {
    const SECRETS: usize = 12;
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("large").await.unwrap();
    let view = stage.view(&namespace).await;
    let names: Vec<String> = (0..SECRETS).map(|number| format!("s-{number:02}")).collect();
    for name in &names {
        view.secret(name, &[("k", &"x".repeat(LARGE)), ("n", name)], None).await.unwrap();
    }
    let operator = stage.start(&namespace, |spec| spec).await;
    let before = operator.process.resident().unwrap();
    push(&view, "all", json!({ "secrets": { "names": names }, "path": view.path("all/{secret}") })).await;
    push(
        &view,
        "shared",
        json!({ "secrets": { "names": names }, "path": view.path("shared"), "keys": [{ "secret": names[0], "from": "n" }] }),
    )
    .await;
    let paths: Vec<String> = names.iter().map(|name| view.path(&format!("all/{name}"))).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    until("all are in step", async || view.is_synced("VaultPush", "all", &paths).await).await;
    for (name, path) in names.iter().zip(&paths) {
        assert_eq!(view.read(path).await.unwrap().unwrap()["n"], *name);
        assert_eq!(view.versions(path).await.unwrap().0, 1, "{path}");
    }
    until("what is made of all of them is not", async || {
        Ok(view.record("VaultPush", "shared").await?.unwrap_or_default()["state"] == "ContentTooLarge")
    })
    .await;
    view.secret(&names[SECRETS - 1], &[("n", "later")], None).await.unwrap();
    until("the last one follows", async || {
        Ok(view.read(paths[SECRETS - 1]).await?.is_some_and(|held| held["n"] == "later"))
    })
    .await;
    let more = operator.process.resident().unwrap() - before;
    assert!(more < ROOM, "{more} bytes more than {before}");
}

async fn push(view: &View, name: &str, spec: Value) {
    let object = json!({ "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultPush", "metadata": { "name": name }, "spec": spec });
    view.api("VaultPush").patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
}

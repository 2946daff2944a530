//! One Secret from its first sync on.

use k8s_openapi::api::core::v1::Secret;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::stage::{Stage, values};

#[track_caller]
fn check(secret: &Secret, expected: &[(&str, &str)]) {
    let expected = expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    assert_eq!(values(secret), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn c5_a_sync_keeps_what_others_set_and_removes_only_what_it_wrote() {
    let stage = Stage::set().await;
    let (sync, diff) = (stage.line("sync k8s"), stage.line("diff k8s"));
    stage.ok("secret set A one").await;
    stage.ok("secret set B two").await;

    let text = stage.ok(&format!("{sync} --dry-run")).await;
    assert_eq!(text, format!("Dry run: nothing is written to Secret {}/backend\n+ A new\n+ B new\n", stage.namespace));
    assert!(stage.secrets().await.get_opt("backend").await.unwrap().is_none());
    let ended = stage.run(&format!("{diff} --exit-code")).await;
    assert_eq!(ended.status.code(), Some(3));

    assert_eq!(stage.ok(&sync).await, format!("Synced 2 secrets to Secret {}/backend\n", stage.namespace));
    let made = stage.secret().await;
    check(&made, &[("A", "one"), ("B", "two")]);
    assert_eq!(made.labels()["app.kubernetes.io/managed-by"], "zopp");
    assert_eq!(made.annotations()["zopp.dev/environment"], "dev");
    assert!(
        made.annotations().contains_key("zopp.dev/synced-at") && made.annotations().contains_key("zopp.dev/synced-by")
    );

    // Others add what is theirs.
    let theirs = json!({
        "metadata": { "labels": { "team": "shop" }, "annotations": { "note": "kept" } },
        "stringData": { "FOREIGN": "theirs" },
    });
    let secrets = stage.secrets().await;
    secrets.patch("backend", &PatchParams::apply("somebody"), &Patch::Merge(&theirs)).await.unwrap();
    let before = stage.secret().await;
    assert!(stage.ok(&sync).await.ends_with("is in sync, nothing is written\n"));
    assert_eq!(stage.secret().await.resource_version(), before.resource_version());
    assert!(stage.run(&format!("{diff} --exit-code")).await.status.success());

    stage.ok("secret set A three").await;
    stage.ok("secret delete B").await;
    let text = stage.ok(&diff).await;
    assert_eq!(text, format!("Secret {}/backend:\n~ A (value differs)\n- B\n", stage.namespace));
    let report: Value = serde_json::from_str(&stage.ok(&format!("{sync} --output json")).await).unwrap();
    assert_eq!(
        (&report["changed"], &report["removed"], &report["written"]),
        (&json!(["A"]), &json!(["B"]), &json!(true))
    );
    let after = stage.secret().await;
    check(&after, &[("A", "three"), ("FOREIGN", "theirs")]);
    assert_eq!((&*after.labels()["team"], &*after.annotations()["note"]), ("shop", "kept"));
    assert_eq!(after.labels()["app.kubernetes.io/managed-by"], "zopp", "also after the second sync");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c5_what_belongs_to_somebody_else_is_taken_by_force_only() {
    let stage = Stage::set().await;
    let sync = stage.line("sync k8s");
    stage.ok("secret set username alice").await;
    // A typed Secret, which the original could not write.
    let typed: Secret = serde_json::from_value(json!({
        "metadata": { "name": "backend" },
        "type": "kubernetes.io/basic-auth",
        "stringData": { "username": "somebody", "password": "theirs" },
    }))
    .unwrap();
    let secrets = stage.secrets().await;
    secrets.create(&PostParams::default(), &typed).await.unwrap();
    let ended = stage.run(&sync).await;
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        stderr.contains("has no label app.kubernetes.io/managed-by=zopp") && stderr.contains("--force"),
        "{stderr}"
    );
    check(&stage.secret().await, &[("password", "theirs"), ("username", "somebody")]);
    stage.ok(&format!("{sync} --force")).await;
    let taken = stage.secret().await;
    check(&taken, &[("password", "theirs"), ("username", "alice")]);
    assert_eq!(taken.type_.as_deref(), Some("kubernetes.io/basic-auth"));

    // Somebody sets a key that the environment gets later.
    let theirs = json!({ "stringData": { "TOKEN": "theirs" } });
    secrets.patch("backend", &PatchParams::apply("somebody"), &Patch::Merge(&theirs)).await.unwrap();
    stage.ok("secret set TOKEN ours").await;
    let ended = stage.run(&sync).await;
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert!(stderr.contains("somebody else set 'TOKEN' to another value"), "{stderr}");
    stage.ok(&format!("{sync} --force")).await;
    check(&stage.secret().await, &[("TOKEN", "ours"), ("password", "theirs"), ("username", "alice")]);

    stage.ok("secret set bad/key x").await;
    let ended = stage.run(&sync).await;
    assert_eq!(ended.status.code(), Some(1));
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert!(stderr.contains("bad/key"), "{stderr}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c5_a_secret_of_the_original_is_taken_over_with_its_stale_keys() {
    let stage = Stage::set().await;
    stage.ok("secret set A new").await;
    let original: Secret = serde_json::from_value(json!({
        "metadata": {
            "name": "backend",
            "labels": { "app.kubernetes.io/managed-by": "zopp" },
            "annotations": { "zopp.dev/synced-at": "2026-01-01T00:00:00Z", "zopp.dev/environment": "dev" },
        },
        "stringData": { "A": "old", "STALE": "x" },
    }))
    .unwrap();
    let parameters = PostParams { field_manager: Some("unknown".to_owned()), ..PostParams::default() };
    stage.secrets().await.create(&parameters, &original).await.unwrap();
    let text = stage.ok(&format!("{} --dry-run", stage.line("sync k8s"))).await;
    assert!(text.ends_with("~ A changed\n- STALE would be removed\n"), "{text}");
    stage.ok(&stage.line("sync k8s")).await;
    check(&stage.secret().await, &[("A", "new")]);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c5_a_kubeconfig_and_a_context_that_are_named_count() {
    let stage = Stage::set().await;
    let line = format!("sync k8s --namespace {} --secret backend --kubeconfig gone.yaml", stage.namespace);
    let stderr = String::from_utf8(stage.run(&line).await.stderr).unwrap();
    assert!(stderr.starts_with("Error: cannot use kubeconfig gone.yaml"), "{stderr}");
    let stderr = stage.run(&format!("{} --context nowhere", stage.line("sync k8s"))).await.stderr;
    let stderr = String::from_utf8(stderr).unwrap();
    assert!(stderr.contains("cannot use kubeconfig") && stderr.contains("nowhere"), "{stderr}");
    stage.end().await;
}

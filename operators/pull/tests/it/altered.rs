//! A policy of the API server replaces a value that the operator writes.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge_testkit::ReplacingPolicy;
use kube::api::PostParams;

use crate::world::{World, until};

/// Waits until a Secret that is created has this value under `A`. Nothing is stored.
async fn is_created_with(world: &World, what: &str, value: &str) {
    let mut probe =
        Secret { data: Some([("A".to_owned(), ByteString(b"probe".to_vec()))].into()), ..Secret::default() };
    probe.metadata.name = Some("probe".to_owned());
    until(what, async || {
        let parameters = PostParams { dry_run: true, ..PostParams::default() };
        let made = world.secrets().create(&parameters, &probe).await.map_err(|error| error.to_string())?;
        let found = made.data.and_then(|mut data| data.remove("A")).map(|value| value.0);
        if found.as_deref() == Some(value.as_bytes()) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_a_policy_replaces_is_told_until_it_is_stored_and_never_counts_as_in_sync() {
    let (world, scene, operator) = World::in_sync().await;
    operator.counts(r#"konverge_pull_bindings{reason="Synced"} 1"#).await;
    let changed = || operator.count(r#"konverge_pull_syncs_total{result="changed"}"#);
    let written_before = changed();
    assert!(written_before > 0, "the series counts writes");
    // "canary-of-the-policy" in base64.
    let policy =
        ReplacingPolicy::create(&world.kubernetes, &world.namespace, "secrets", "A", "Y2FuYXJ5LW9mLXRoZS1wb2xpY3k=")
            .await
            .unwrap();
    is_created_with(&world, "the API server heeds the policy", "canary-of-the-policy").await;

    scene.set("A", "canary-of-the-owner");
    let text = world.told("backend", "SyncFailed").await;
    assert!(text.contains(".data.A") && text.contains("AlteredByAdmission"), "{text}");
    operator.counts(r#"konverge_pull_bindings{reason="SyncFailed"} 1"#).await;
    operator.counts(r#"konverge_pull_bindings{reason="Synced"} 0"#).await;
    // For as long as it lasts, its event is current.
    assert!(world.is_renewed("backend", "SyncFailed").await >= 2);
    let events = format!("{:?}", world.events("backend").await);
    assert!(!events.contains("canary") && !events.contains("Y2FuYXJ5"), "{events}");
    assert_eq!(changed(), written_before, "none of these writes brought it in sync");
    world.holds("backend", &[("A", "canary-of-the-policy")]).await;

    policy.lift().await.unwrap();
    world.holds("backend", &[("A", "canary-of-the-owner")]).await;
    operator.counts(r#"konverge_pull_bindings{reason="Synced"} 1"#).await;
    // Then it is at rest again, also as far as its events are concerned.
    world.is_renewed("backend", "Synced").await;
    let told = world.all_events("backend").await;
    world.stays("backend", &[&operator]).await;
    assert_eq!(world.all_events("backend").await, told);
}

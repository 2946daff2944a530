//! A failure is reported on the Secret, takes nothing from it, and delays no other Secret.

use std::time::Duration;

use konverge_testkit::AuditEntry;
use serde_json::json;
use tokio::time::Instant;
use tonic::Status;

use crate::world::{World, holds, is_left_alone};

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_annotations_are_named_and_the_data_stays() {
    let (world, scene, operator) = World::in_sync().await;
    let annotations = json!({ "zopp.dev/sync": "true", "zopp.dev/workspace": "acme", "zopp.dev/environment": "" });
    world.annotate("backend", annotations).await;
    let text = world.told("backend", "InvalidAnnotation").await;
    assert!(text.contains("zopp.dev/project") && text.contains("zopp.dev/environment"), "{text}");
    operator.counts(r#"konverge_pull_bindings{reason="InvalidAnnotation"} 1"#).await;
    holds("the stream is closed", || scene.streams() == 0).await;
    scene.set("A", "2");
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "1")]).await;
    world.bind("backend", &scene).await;
    world.holds("backend", &[("A", "2")]).await;
    operator.counts(r#"konverge_pull_bindings{reason="InvalidAnnotation"} 0"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_of_keys_is_followed_and_what_is_misspelt_is_told() {
    let (world, scene, _operator) = World::in_sync().await;
    scene.set("B_1", "2");
    world.holds("backend", &[("A", "1"), ("B_1", "2")]).await;
    let environment = scene.name();
    let annotations = |more: (&str, &str)| {
        let mut annotations = json!({
            "zopp.dev/sync": "true", "zopp.dev/workspace": environment.workspace, "zopp.dev/project": environment.project,
            "zopp.dev/environment": environment.environment,
        });
        annotations[more.0] = more.1.into();
        annotations
    };
    world.annotate("backend", annotations(("zopp.dev/keys", "B_*"))).await;
    world.holds("backend", &[("B_1", "2")]).await;
    world.annotate("backend", annotations(("pull.konverge.dev/keys", "A, C"))).await;
    world.holds("backend", &[("A", "1")]).await;
    assert!(world.told("backend", "KeyNotFound").await.contains(r#""C""#));
    world.annotate("backend", annotations(("zopp.dev/key", "B_1"))).await;
    world.holds("backend", &[("A", "1"), ("B_1", "2")]).await;
    assert!(world.told("backend", "UnknownAnnotation").await.contains("zopp.dev/key"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_rules_forbid_is_not_even_asked_for() {
    let world = World::new().await;
    let (scene, allowed) = (world.server.create("production"), world.server.create("staging"));
    scene.set("A", "1");
    allowed.set("B", "2");
    world.bind("backend", &scene).await;
    world.bind("frontend", &allowed).await;
    let rule = format!("{}=acme/*/staging", world.namespace);
    let operator = world.operator(&["--allow", &rule]).await;
    world.holds("frontend", &[("B", "2")]).await;
    let text = world.told("backend", "NotAllowed").await;
    assert!(text.contains("acme/backend/production") && text.contains("--allow"), "{text}");
    operator.counts(r#"konverge_pull_bindings{reason="NotAllowed"} 1"#).await;
    assert_eq!((scene.streams(), scene.lists()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_keeps_the_data_and_its_end_is_noticed() {
    let (world, scene, operator) = World::in_sync().await;
    for (refusal, reason, next_step) in [
        (Status::permission_denied("no"), "PermissionDenied", "zopp permission env-set"),
        (Status::not_found("no such environment"), "EnvironmentNotFound", "annotations"),
        (Status::unauthenticated("unknown principal"), "CredentialsInvalid", "credentials"),
        (Status::unavailable("shutting down"), "ServerUnreachable", "check the server"),
        (Status::internal("oh"), "BadServerAnswer", "log"),
    ] {
        scene.refuse(Some(refusal));
        let text = world.told("backend", reason).await;
        assert!(text.contains("acme/backend/production") && text.contains(next_step), "{reason}: {text}");
        operator.counts(&format!("konverge_pull_bindings{{reason=\"{reason}\"}} 1")).await;
        world.holds("backend", &[("A", "1")]).await;
        scene.refuse(None);
        operator.counts(r#"konverge_pull_bindings{reason="Synced"} 1"#).await;
    }
}

/// Nothing tells the operator of a role that was granted. A person who waits for it changes the Secret.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_long_refusal_a_change_of_the_secret_has_it_filled_at_once() {
    let (world, scene, operator) = World::in_sync().await;
    scene.refuse(Some(Status::permission_denied("no")));
    scene.hang_up();
    world.told("backend", "PermissionDenied").await;
    is_left_alone(&scene).await;
    scene.set("A", "2");
    scene.refuse(None);
    let granted = Instant::now();
    world.merge("backend", "somebody", json!({ "metadata": { "labels": { "tried": "again" } } })).await;
    world.holds("backend", &[("A", "2")]).await;
    assert!(granted.elapsed() < Duration::from_secs(3), "{:?}", granted.elapsed());
    operator.counts(r#"konverge_pull_bindings{reason="Synced"} 1"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trouble_after_another_is_told() {
    let (world, scene, operator) = World::in_sync().await;
    scene.refuse(Some(Status::unavailable("shutting down")));
    world.told("backend", "ServerUnreachable").await;
    scene.refuse(Some(Status::permission_denied("no")));
    world.told("backend", "PermissionDenied").await;
    operator.counts(r#"konverge_pull_bindings{reason="PermissionDenied"} 1"#).await;
    operator.counts(r#"konverge_pull_bindings{reason="ServerUnreachable"} 0"#).await;
    // Out of reach in between: what was said explains more, and is not said again.
    let told = world.events("backend").await.len();
    for refusal in [Status::unavailable("again"), Status::permission_denied("no")] {
        scene.refuse(Some(refusal));
        let lists = scene.asked();
        holds("it was asked", || scene.asked() > lists).await;
        operator.settled().await;
    }
    assert_eq!(world.events("backend").await.len(), told);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_trouble_with_another_environment_is_told() {
    let (world, first, operator) = World::in_sync().await;
    let second = world.server.create("staging");
    for (refusal, reason) in [
        (Status::not_found("no such environment"), "EnvironmentNotFound"),
        (Status::permission_denied("no"), "PermissionDenied"),
    ] {
        for scene in [&first, &second] {
            scene.refuse(Some(refusal.clone()));
            world.bind("backend", scene).await;
            world.told_of("backend", reason, &scene.name().to_string()).await;
        }
    }
    let unreachable = world.server.create("unreachable");
    unreachable.refuse(Some(Status::unavailable("shutting down")));
    world.bind("backend", &unreachable).await;
    world.told_of("backend", "ServerUnreachable", "acme/backend/unreachable").await;
    operator.counts(r#"konverge_pull_bindings{reason="ServerUnreachable"} 1"#).await;
    operator.counts(r#"konverge_pull_bindings{reason="PermissionDenied"} 0"#).await;
    world.holds("backend", &[("A", "1")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_cannot_be_decrypted_keeps_its_value() {
    let (world, scene, operator) = World::in_sync().await;
    scene.set("B", "2");
    world.holds("backend", &[("A", "1"), ("B", "2")]).await;
    scene.spoil("B");
    scene.set("C", "3");
    world.holds("backend", &[("A", "1"), ("B", "2"), ("C", "3")]).await;
    let text = world.told("backend", "DecryptionFailed").await;
    assert!(text.contains("\"B\"") && text.contains("zopp secret set"), "{text}");
    operator.counts(r#"konverge_pull_bindings{reason="DecryptionFailed"} 1"#).await;
    scene.set("B", "4");
    world.holds("backend", &[("A", "1"), ("B", "4"), ("C", "3")]).await;
    operator.counts(r#"konverge_pull_bindings{reason="Synced"} 1"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_kubernetes_refuses_is_left_out() {
    let (world, scene, _operator) = World::in_sync().await;
    scene.set("no space", "x");
    scene.set("B", "2");
    world.holds("backend", &[("A", "1"), ("B", "2")]).await;
    let text = world.told("backend", "InvalidKeyName").await;
    assert!(text.contains("\"no space\"") && !text.contains("\"B\""), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_not_written_and_what_fits_again_is() {
    let (world, scene, _operator) = World::in_sync().await;
    scene.set("LARGE", vec![b'x'; (1 << 20) + 1]);
    let text = world.told("backend", "TooLarge").await;
    assert!(text.contains("1048576") && !text.contains("xxx"), "{text}");
    world.holds("backend", &[("A", "1")]).await;
    scene.set("LARGE", "small");
    world.holds("backend", &[("A", "1"), ("LARGE", "small")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_immutable_secret_is_left_alone() {
    let (world, scene, operator) = World::in_sync().await;
    world.merge("backend", "somebody", json!({ "immutable": true })).await;
    scene.set("A", "2");
    let text = world.told("backend", "Immutable").await;
    assert!(text.contains("create it again"), "{text}");
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "1")]).await;
    world.delete("backend").await;
    world.bind("backend", &scene).await;
    world.holds("backend", &[("A", "2")]).await;
}

/// The operator learns of the change before it learns that the Secret is immutable. The API server refuses each write since.
#[tokio::test(flavor = "multi_thread")]
async fn an_immutable_secret_is_not_written_for_the_next_change() {
    let (world, scene, operator) = World::in_sync().await;
    let log = world.audit_log().await.from_now().unwrap();
    scene.hang(true);
    scene.set("A", "2");
    holds("the change is being read", || scene.hanging() > 0).await;
    world.merge("backend", "somebody", json!({ "immutable": true })).await;
    // The watch shows it while the change is still being read.
    operator.settled().await;
    scene.hang(false);
    world.told("backend", "Immutable").await;
    operator.settled().await;
    scene.set("A", "3");
    operator.settled().await;
    world.audit_log().await;
    let about = log.entries().unwrap().into_iter().filter(|entry| world.is_about(entry, "backend"));
    let codes: Vec<_> = about.filter(AuditEntry::is_mutating).map(|entry| entry.response_status.code).collect();
    assert!(!codes.contains(&422), "{codes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_made_anew_is_followed_with_a_manifest() {
    let world = World::new().await;
    let scene = world.server.create("production");
    scene.answer_own_calls();
    scene.set("A", "1");
    world.bind("backend", &scene).await;
    let operator = world.operator(&[]).await;
    world.holds("backend", &[("A", "1")]).await;
    let former = scene.id();
    scene.recreate();
    world.told_of("backend", "EnvironmentReplaced", &former).await;
    scene.set("B", "2");
    let text = world.told("backend", "EnvironmentReplaced").await;
    assert!(text.contains("zopp environment protect production") && text.contains("--accept-older"), "{text}");
    operator.counts(r#"konverge_pull_bindings{reason="EnvironmentReplaced"} 1"#).await;
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "1")]).await;
    scene.protect();
    world.holds("backend", &[("B", "2")]).await;
    operator.counts(r#"konverge_pull_bindings{reason="Synced"} 1"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_was_never_applied_may_be_replaced() {
    let world = World::new().await;
    let scene = world.server.create("production");
    world.bind("backend", &scene).await;
    let _operator = world.operator(&[]).await;
    world.told("backend", "EnvironmentEmpty").await;
    scene.recreate();
    scene.set("A", "1");
    world.holds("backend", &[("A", "1")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_version_is_not_applied() {
    let (world, scene, _operator) = World::in_sync().await;
    scene.set("A", "2");
    scene.set("A", "3");
    world.holds("backend", &[("A", "3")]).await;
    scene.set_silently("A", "old");
    scene.state_version(2);
    let text = world.told("backend", "SourceWentBack").await;
    assert!(text.contains("version 2"), "{text}");
    world.holds("backend", &[("A", "3")]).await;
    scene.state_version(9);
    world.holds("backend", &[("A", "old")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_environment_that_hangs_holds_no_other_up() {
    let (world, scene, _operator) = World::in_sync().await;
    for number in 0..20 {
        let hanging = world.server.create(&format!("hanging-{number}"));
        hanging.hang(true);
        world.bind(&format!("hanging-{number}"), &hanging).await;
        holds("it is asked for", || hanging.lists() > 0).await;
    }
    let began = std::time::Instant::now();
    scene.set("A", "2");
    world.holds("backend", &[("A", "2")]).await;
    assert!(began.elapsed() < std::time::Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_value_is_in_any_event() {
    let (world, scene, _operator) = World::in_sync().await;
    scene.set("no space", "canary-value");
    scene.set("B", "canary-value");
    scene.spoil("C");
    world.told("backend", "InvalidKeyName").await;
    world.told("backend", "DecryptionFailed").await;
    assert!(!format!("{:?}", world.events("backend").await).contains("canary"));
}

#[tokio::test(flavor = "multi_thread")]
async fn values_under_a_forged_workspace_key_are_not_written() {
    let (world, scene, operator) = World::in_sync().await;
    // All that it makes up decrypts: the key of the workspace, that of the environment, and the values.
    world.server.forge_key();
    scene.recreate();
    scene.set("A", "forged");
    scene.set("B", "forged");
    let text = world.told("backend", "WorkspaceKeyChanged").await;
    assert!(text.contains("acme") && text.contains("zopp workspace fingerprint"), "{text}");
    operator.counts(r#"konverge_pull_bindings{reason="WorkspaceKeyChanged"} 1"#).await;
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "1")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_a_server_keeps_back_are_not_deleted() {
    let world = World::new().await;
    let scene = world.server.create("production");
    scene.protect();
    scene.set("A", "1");
    scene.set("B", "2");
    world.bind("backend", &scene).await;
    let operator = world.operator(&[]).await;
    world.holds("backend", &[("A", "1"), ("B", "2")]).await;
    let text = world.told("backend", "Synced").await;
    assert!(!text.contains("no manifest"), "{text}");

    scene.keep_back("A");
    let text = world.told("backend", "SourceNotCurrent").await;
    assert!(text.contains(r#"left out: "A""#) && text.contains("zopp environment protect production"), "{text}");
    operator.counts(r#"konverge_pull_bindings{reason="SourceNotCurrent"} 1"#).await;
    // Not even all of them, which two reads confirm.
    scene.keep_back("B");
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "1"), ("B", "2")]).await;

    scene.give_everything();
    operator.counts(r#"konverge_pull_bindings{reason="Synced"} 1"#).await;
    // A key that the manifest shows as deleted is deleted.
    scene.remove("B");
    world.holds("backend", &[("A", "1")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_state_is_refused_also_with_its_own_manifest() {
    let world = World::new().await;
    let scene = world.server.create("production");
    scene.protect();
    scene.set("A", "1");
    scene.set("A", "2");
    world.bind("backend", &scene).await;
    let _operator = world.operator(&[]).await;
    world.holds("backend", &[("A", "2")]).await;
    // With an authentic manifest of that state.
    scene.state_version(1);
    world.told_of("backend", "SourceNotCurrent", "older state").await;
    world.holds("backend", &[("A", "2")]).await;
    scene.set("A", "3");
    world.holds("backend", &[("A", "3")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_was_there_does_not_vanish() {
    let world = World::new().await;
    let scene = world.server.create("production");
    scene.protect();
    scene.set("A", "1");
    world.bind("backend", &scene).await;
    let _operator = world.operator(&[]).await;
    world.holds("backend", &[("A", "1")]).await;
    // As a server that says that it has never heard of manifests.
    scene.unprotect();
    scene.set("A", "2");
    world.told_of("backend", "SourceNotCurrent", "no manifest of an environment that had one").await;
    world.holds("backend", &[("A", "1")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_without_a_manifest_is_synced_and_told_to_have_none() {
    let (world, _scene, _operator) = World::in_sync().await;
    let text = world.told("backend", "Synced").await;
    assert!(text.contains("no manifest"), "{text}");
}

//! Content of the cluster reaches Vault, and no more often than it changes.

use std::time::Duration;

use konverge_push::object::Kind;
use konverge_testkit::AuditEntry;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use crate::world::{World, until};

/// How soon a change of a Secret is in Vault. A machine with other work to do may miss it now and then, and hardly each time.
const PROMPT: Duration = Duration::from_secs(2);

/// How long an object is paused. The time that a change takes is far shorter.
const PAUSED: Duration = Duration::from_secs(8);

/// So often it may.
const ROUNDS: usize = 10;

#[tokio::test]
async fn a_pause_is_no_part_of_the_time_that_a_change_takes() {
    let world = World::new().await;
    let operator = world.operator(&[]).await;
    let path = world.path("db");
    world.secret("db", &[("k", "1")], json!({ "vault-sync.io/path": path })).await;
    world.says(Kind::Secret, "db", "Synced").await;
    world.rotate("db", &[("k", "2")]).await;
    world.holds(&path, &[("k", "2")]).await;
    operator.settled().await;
    let observed = |field: &str| operator.metric(&format!("konverge_push_propagation_seconds_{field}"), "");
    assert!(observed("count") > 0.0, "a change is observed");
    let before = observed("sum");
    world.annotate(Kind::Secret, "db", json!({ "vault-sync.io/pause": "true" })).await;
    world.event("db", "Paused").await;
    world.rotate("db", &[("k", "3")]).await;
    operator.settled().await;
    // Real time, because the operator measures it.
    tokio::time::sleep(PAUSED).await;
    world.annotate(Kind::Secret, "db", json!({ "vault-sync.io/pause": null })).await;
    world.holds(&path, &[("k", "3")]).await;
    operator.settled().await;
    // The end of the pause is a change of the Secret, too.
    assert!(observed("sum") - before < PAUSED.as_secs_f64(), "the time of the pause is observed");
}

#[tokio::test]
async fn a_secret_that_asks_is_read_once_whatever_is_noted_on_it() {
    let world = World::new().await;
    let path = world.path("db");
    let operator = world.operator(&[]).await;
    let asked = world.asked_during(async {
        world.secret("db", &[("user", "u")], json!({ "vault-sync.io/path": path })).await;
        world.says(Kind::Secret, "db", "Synced").await;
        operator.settled().await;
    });
    let asked = asked.await;
    let of = |verb: &str| asked.iter().filter(|entry| entry.object_ref.name == "db" && entry.verb == verb).count();
    assert_eq!((of("get"), of("patch")), (1, 2), "read; intended and done: {asked:?}");
}

#[tokio::test]
async fn w1_a_secret_settles_with_one_version_and_its_rotation_is_one_more() {
    let world = World::new().await;
    let path = world.path("db");
    let operator = world.operator(&[]).await;
    world.secret("db", &[("user", "u"), ("password", "p")], json!({ "vault-sync.io/path": path })).await;
    world.holds(&path, &[("password", "p"), ("user", "u")]).await;
    world.says(Kind::Secret, "db", "Synced").await;
    // Real time: a run that is queued for later counts as settled, and none may write within this minute.
    let writes = world.writes_during(tokio::time::sleep(Duration::from_mins(1))).await;
    assert!(writes.is_empty(), "{writes:?}");
    assert_eq!(world.versions(&path).await, 1, "after a minute at rest");
    world.rotate("db", &[("password", "q")]).await;
    world.holds(&path, &[("password", "q"), ("user", "u")]).await;
    // The record follows the write, and said so of the first version, too.
    until("the record has the second version", async || {
        let record = world.record(Kind::Secret, "db").await.ok_or("no record")?;
        if record["paths"][&path]["version"] == 2 { Ok(()) } else { Err(record.to_string()) }
    })
    .await;
    operator.settled().await;
    world.says(Kind::Secret, "db", "Synced").await;
    assert_eq!(world.versions(&path).await, 2);
}

#[tokio::test]
async fn w2_w24_a_rotated_secret_reaches_every_kind_of_workload_that_uses_it() {
    let world = World::new().await;
    world.secret("db", &[("user", "u")], json!({})).await;
    let kinds = [Kind::Deployment, Kind::StatefulSet, Kind::DaemonSet, Kind::CronJob, Kind::Job, Kind::Rollout];
    let _operator = world.operator(&[]).await;
    for kind in kinds {
        let path = world.path(kind.plural());
        world.workload(kind, "app", &["db"], json!({ "vault-sync.io/path": path })).await;
    }
    for kind in kinds {
        world.holds(&format!("{}/db", world.path(kind.plural())), &[("user", "u")]).await;
    }
    world.rotate("db", &[("user", "v")]).await;
    for kind in kinds {
        let path = format!("{}/db", world.path(kind.plural()));
        world.holds(&path, &[("user", "v")]).await;
        assert_eq!(world.versions(&path).await, 2);
    }
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let (begun, user) = (Instant::now(), format!("w{round}"));
        world.rotate("db", &[("user", &user)]).await;
        for kind in kinds {
            world.holds(&format!("{}/db", world.path(kind.plural())), &[("user", &user)]).await;
        }
        took.push(begun.elapsed());
        if took[round] < PROMPT {
            return;
        }
    }
    panic!("never within {PROMPT:?} in all of them: {took:?}");
}

#[tokio::test]
async fn w9_restarts_and_scaling_write_nothing() {
    let world = World::new().await;
    let path = world.path("app");
    world.secret("db", &[("user", "u")], json!({})).await;
    world.workload(Kind::Deployment, "app", &["db"], json!({ "vault-sync.io/path": path })).await;
    let operator = world.operator(&[]).await;
    world.holds(&format!("{path}/db"), &[("user", "u")]).await;
    world.says(Kind::Deployment, "app", "Synced").await;
    operator.stop().await;
    let restarts = Box::pin(async {
        for _ in 0..5 {
            let operator = world.operator(&[]).await;
            operator.settled().await;
            operator.stop().await;
        }
    });
    let mut writes = world.asked_during(restarts).await;
    // No event either.
    writes.retain(AuditEntry::is_mutating);
    assert!(writes.is_empty(), "{writes:?}");
    let operator = world.operator(&[]).await;
    world.says(Kind::Deployment, "app", "Synced").await;
    let scaling = Box::pin(async {
        for replicas in 2..=21 {
            let scaled = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
            world.api(Kind::Deployment).patch("app", &PatchParams::default(), &scaled).await.unwrap();
        }
        operator.settled().await;
    });
    let writes = world.writes_during(scaling).await;
    assert!(writes.is_empty(), "{writes:?}");
    operator.stop().await;
    assert_eq!(world.versions(&format!("{path}/db")).await, 1);
}

#[tokio::test]
async fn w10_what_is_edited_or_deleted_in_vault_is_put_right_within_the_interval() {
    let world = World::new().await;
    let (whole, chosen) = (world.path("whole"), world.path("chosen"));
    let secrets = json!([{ "name": "db", "keys": ["user"], "prefix": "db_" }]).to_string();
    let _operator = world.operator(&[]).await;
    world.secret("db", &[("user", "u")], json!({ "vault-sync.io/path": whole, "vault-sync.io/sync-now": "1" })).await;
    let annotations = json!({ "vault-sync.io/path": chosen, "vault-sync.io/secrets": secrets });
    world.workload(Kind::Deployment, "app", &[], annotations).await;
    world.holds(&whole, &[("user", "u")]).await;
    world.holds(&chosen, &[("db_user", "u")]).await;
    world.says(Kind::Secret, "db", "Synced").await;
    world.says(Kind::Deployment, "app", "Synced").await;
    world.write(&whole, &[("user", "edited")]).await;
    let location = world.locate(&chosen).await;
    world.vault.delete(&location, konverge_vault::Expected::Any, konverge_vault::Deletion::Soft).await.unwrap();
    // The shortest interval is 30 s; this is quicker, and the test after this waits for it.
    world.annotate(Kind::Secret, "db", json!({ "vault-sync.io/sync-now": "2" })).await;
    world.annotate(Kind::Deployment, "app", json!({ "vault-sync.io/sync-now": "2" })).await;
    world.holds(&whole, &[("user", "u")]).await;
    world.holds(&chosen, &[("db_user", "u")]).await;
}

#[tokio::test]
async fn w10_an_edit_in_vault_is_put_right_when_the_interval_is_over_and_nobody_asks() {
    let world = World::new().await;
    let (edited, beside, taken) = (world.path("edited"), world.path("app/db"), world.path("app/api"));
    let operator = world.operator(&[]).await;
    let every = |path: &str| json!({ "vault-sync.io/path": path, "vault-sync.io/reconcile": "30s" });
    world.secret("edited", &[("user", "u")], every(&edited)).await;
    // One of the paths of this is another's, so the object is not in sync. The other path is looked at all the same.
    world.secret("taken", &[("user", "u")], json!({ "vault-sync.io/path": taken })).await;
    world.says(Kind::Secret, "taken", "Synced").await;
    world.secret("db", &[("user", "u")], json!({})).await;
    world.secret("api", &[("user", "u")], json!({})).await;
    world.workload(Kind::Deployment, "app", &["db", "api"], every(&world.path("app"))).await;
    world.says(Kind::Secret, "edited", "Synced").await;
    world.says(Kind::Deployment, "app", "OwnedByAnother").await;
    for path in [&edited, &beside] {
        world.holds(path, &[("user", "u")]).await;
        world.write(path, &[("user", "somebody's")]).await;
    }
    for path in [&edited, &beside] {
        world.holds(path, &[("user", "u")]).await;
        assert_eq!(world.versions(path).await, 3, "{path}");
    }
    world.event("edited", "DriftCorrected").await;
    assert!(operator.metric("konverge_push_drift_total", "") > 0.5);
}

#[tokio::test]
async fn a_look_costs_one_read_for_each_path_also_where_an_optional_secret_is_missing() {
    let world = World::new().await;
    let operator = world.operator(&[]).await;
    world.secret("db", &[("user", "u")], json!({})).await;
    let container = json!({ "envFrom": [
        { "secretRef": { "name": "db" } },
        { "secretRef": { "name": "never", "optional": true } },
    ] });
    let annotations = json!({ "vault-sync.io/path": world.path("app"), "vault-sync.io/reconcile": "30s" });
    world.workload_of(Kind::Deployment, "app", container, annotations).await;
    world.says(Kind::Deployment, "app", "Synced").await;
    let reads = || operator.metric("konverge_push_vault_reads_total", "");
    let before = reads();
    until("it has looked", async || (reads() > before).then_some(()).ok_or_else(|| "no read".to_owned())).await;
    operator.settled().await;
    let read = reads() - before;
    assert!((read - 1.0).abs() < 0.5, "{read} reads in one look");
}

#[tokio::test]
async fn what_was_refused_and_never_had_anything_is_counted_until_it_is_deleted() {
    let world = World::new().await;
    let operator = world.operator(&["--allow-path", "*=secret/data/elsewhere/*"]).await;
    world.secret("db", &[("user", "u")], json!({ "vault-sync.io/path": world.path("db") })).await;
    world.says(Kind::Secret, "db", "PathNotAllowed").await;
    let counted = || operator.metric("konverge_push_bindings", "PathNotAllowed");
    assert!(counted() > 0.5);
    world.api(Kind::Secret).delete("db", &DeleteParams::default()).await.unwrap();
    until("it is not counted", async || (counted() < 0.5).then_some(()).ok_or_else(|| "it is".to_owned())).await;
}

#[tokio::test]
async fn w13_binary_values_come_back_as_they_were() {
    let world = World::new().await;
    let path = world.path("keys");
    let _operator = world.operator(&[]).await;
    let annotations =
        json!({ "metadata": { "annotations": { "vault-sync.io/path": path } }, "data": { "der": "/u0A/w==" } });
    world.apply(Kind::Secret, "keys", annotations).await;
    world.holds(&path, &[("der", "/u0A/w==")]).await;
    let told = world.event("keys", "ValuesEncoded").await;
    assert!(told.contains("base64") && told.contains("der"), "{told}");
    world.annotate(Kind::Secret, "keys", json!({ "vault-sync.io/binary": "refuse" })).await;
    let told = world.says(Kind::Secret, "keys", "BinaryValue").await;
    assert!(told.contains("\"der\"") && told.contains("vault-sync.io/binary: base64"), "{told}");
    assert_eq!(world.versions(&path).await, 1);
}

#[tokio::test]
async fn w15_what_is_missing_blocks_nothing_else_and_wakes_when_it_comes() {
    let world = World::new().await;
    let path = world.path("app");
    world.secret("db", &[("user", "u")], json!({})).await;
    let container = json!({ "envFrom": [
        { "secretRef": { "name": "db" } },
        { "secretRef": { "name": "late" } },
        { "secretRef": { "name": "never", "optional": true } },
    ] });
    let _operator = world.operator(&[]).await;
    world.workload_of(Kind::Deployment, "app", container, json!({ "vault-sync.io/path": path })).await;
    world.holds(&format!("{path}/db"), &[("user", "u")]).await;
    let told = world.says(Kind::Deployment, "app", "SecretNotFound").await;
    assert!(told.contains("\"late\"") && !told.contains("never"), "{told}");
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let (begun, value) = (Instant::now(), round.to_string());
        world.secret("late", &[("a", &value)], json!({})).await;
        world.holds(&format!("{path}/late"), &[("a", &value)]).await;
        took.push(begun.elapsed());
        world.says(Kind::Deployment, "app", "Synced").await;
        if took[round] < PROMPT {
            return;
        }
        world.delete(Kind::Secret, "late").await;
        world.says(Kind::Deployment, "app", "SecretNotFound").await;
    }
    panic!("never within {PROMPT:?}: {took:?}");
}

#[tokio::test]
async fn a_secret_that_is_missing_is_counted_once_with_each_run_that_needs_it() {
    let world = World::new().await;
    let operator = world.operator(&[]).await;
    let container = json!({ "envFrom": [
        { "secretRef": { "name": "late" } },
        { "secretRef": { "name": "never", "optional": true } },
    ] });
    let counted = |name: &str| {
        let label = format!("namespace=\"{}\",secret_name=\"{name}\"", world.namespace);
        operator.metric("vault_sync_operator_secret_not_found_errors_total", &label)
    };
    let are = async |late: f64| {
        operator.settled().await;
        assert!((counted("late") - late).abs() < 0.5, "{} of {late}", counted("late"));
        assert!(counted("never") < 0.5, "nobody needs it");
    };
    world.workload_of(Kind::Deployment, "app", container, json!({ "vault-sync.io/path": world.path("app") })).await;
    world.says(Kind::Deployment, "app", "SecretNotFound").await;
    are(1.0).await;
    // An operator that does not look for it does not miss it.
    world.annotate(Kind::Deployment, "app", json!({ "example.com/note": "of somebody else" })).await;
    are(1.0).await;
    world.annotate(Kind::Deployment, "app", json!({ "vault-sync.io/sync-now": "1" })).await;
    until("it has looked again", async || {
        let record = world.record(Kind::Deployment, "app").await.ok_or("no record")?;
        if record["answered"] == "1" { Ok(()) } else { Err(record.to_string()) }
    })
    .await;
    are(2.0).await;
    world.secret("late", &[("a", "b")], json!({})).await;
    world.says(Kind::Deployment, "app", "Synced").await;
    are(2.0).await;
    // Nor does the original tell that one is not there from that it may not be read.
    world.may_not_get_secrets().await;
    world.rotate("late", &[("a", "c")]).await;
    until("what may not be read is counted", async || {
        if counted("late") > 2.5 { Ok(()) } else { Err(counted("late").to_string()) }
    })
    .await;
}

#[tokio::test]
async fn p13_a_source_that_is_deleted_leaves_vault_as_it_is_and_counts_again_when_it_is_back() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    let (whole, chosen) = (world.path("whole"), world.path("chosen"));
    world.secret("db", &[("user", "u")], json!({})).await;
    world.secret("api", &[("key", "k")], json!({})).await;
    world.workload(Kind::Deployment, "whole", &["db", "api"], json!({ "vault-sync.io/path": whole })).await;
    let list = json!([{ "name": "db", "keys": ["user"] }, { "name": "api", "keys": ["key"] }]).to_string();
    let annotations = json!({ "vault-sync.io/path": chosen, "vault-sync.io/secrets": list });
    world.workload(Kind::StatefulSet, "chosen", &[], annotations).await;
    let both = [(Kind::Deployment, "whole"), (Kind::StatefulSet, "chosen")];
    for (kind, name) in both {
        world.says(kind, name, "Synced").await;
    }
    world.delete(Kind::Secret, "db").await;
    for (kind, name) in both {
        let told = world.says(kind, name, "SecretNotFound").await;
        assert!(told.contains("\"db\" not found") && told.contains("stays as it is"), "{told}");
        assert!(world.event(name, "SecretNotFound").await.contains("\"db\""));
    }
    // A Secret that is still there goes on where it has a path of its own.
    world.rotate("api", &[("key", "l")]).await;
    world.holds(&format!("{whole}/api"), &[("key", "l")]).await;
    world.holds(&format!("{whole}/db"), &[("user", "u")]).await;
    world.holds(&chosen, &[("key", "k"), ("user", "u")]).await;
    world.secret("db", &[("user", "v")], json!({})).await;
    world.holds(&format!("{whole}/db"), &[("user", "v")]).await;
    world.holds(&chosen, &[("key", "l"), ("user", "v")]).await;
    for (kind, name) in both {
        world.says(kind, name, "Synced").await;
    }
    for path in [&format!("{whole}/db"), &format!("{whole}/api"), &chosen] {
        assert_eq!(world.versions(path).await, 2, "{path}");
    }
}

#[tokio::test]
async fn w4_every_mount_and_version_is_found_out() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    let name = &world.namespace;
    for (secret, path) in
        [("a", format!("kv/data/{name}/a")), ("b", format!("kv/{name}/b")), ("c", format!("old/{name}/c"))]
    {
        world.secret(secret, &[("k", "v")], json!({ "vault-sync.io/path": path })).await;
        world.holds(&path, &[("k", "v")]).await;
        world.says(Kind::Secret, secret, "Synced").await;
    }
    world.rotate("c", &[("k", "w")]).await;
    world.holds(&format!("old/{name}/c"), &[("k", "w")]).await;
}

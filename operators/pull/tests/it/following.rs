//! A Secret follows its environment, and only that.

use serde_json::json;

use crate::world::{World, holds, until};

#[tokio::test(flavor = "multi_thread")]
async fn keys_come_change_and_go_and_foreign_keys_stay() {
    let (world, scene, operator) = World::in_sync().await;
    world.merge("backend", "somebody", json!({ "stringData": { "FOREIGN": "x" } })).await;
    scene.set("B", "2");
    world.holds("backend", &[("A", "1"), ("B", "2"), ("FOREIGN", "x")]).await;
    scene.set("A", "3");
    world.holds("backend", &[("A", "3"), ("B", "2"), ("FOREIGN", "x")]).await;
    scene.remove("B");
    world.holds("backend", &[("A", "3"), ("FOREIGN", "x")]).await;
    operator.counts("konverge_pull_missed_events_total 0").await;
    operator.counts(r#"konverge_pull_bindings{reason="Synced"} 1"#).await;
    assert!(world.told("backend", "Synced").await.contains("acme/backend/production"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_need_not_be_text() {
    let (world, scene, _operator) = World::in_sync().await;
    let bytes: Vec<u8> = (0..=u8::MAX).rev().collect();
    scene.set("KEYSTORE", &bytes);
    until("the bytes are there", async || {
        let data = world.secrets().get("backend").await.unwrap().data.unwrap_or_default();
        let held = data.get("KEYSTORE").map(|value| value.0.clone()).unwrap_or_default();
        if held == bytes { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
}

/// As after a fail-over of the server to a database that lost a change.
#[tokio::test(flavor = "multi_thread")]
async fn other_content_under_the_same_version_is_written() {
    let (world, scene, _operator) = World::in_sync().await;
    scene.set_at_the_same_version("A", "2");
    world.holds("backend", &[("A", "2")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_key_goes_when_two_reads_say_so() {
    let (world, scene, operator) = World::in_sync().await;
    scene.remove("A");
    world.holds("backend", &[]).await;
    world.stays("backend", &[&operator]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_removed_while_the_operator_was_away_goes_when_it_is_back() {
    let (world, scene, operator) = World::in_sync().await;
    scene.set("B", "2");
    world.holds("backend", &[("A", "1"), ("B", "2")]).await;
    operator.stop().await;
    holds("no stream", || scene.streams() == 0).await;
    scene.remove_silently("B");
    let _operator = world.operator(&[]).await;
    world.holds("backend", &[("A", "1")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_rest_nothing_is_written_and_a_restart_writes_nothing() {
    let (world, scene, operator) = World::in_sync().await;
    let rest = world.audit_log().await.from_now().unwrap();
    let lists = scene.lists();
    holds("some polls", || scene.lists() >= lists + 2).await;
    operator.stop().await;
    let operator = world.operator(&[]).await;
    operator.counts(r#"konverge_pull_syncs_total{result="unchanged"} 1"#).await;
    operator.settled().await;
    world.audit_log().await;
    let entries = rest.entries().unwrap();
    let written: Vec<_> =
        entries.iter().filter(|entry| entry.is_mutating() && world.is_about(entry, "backend")).collect();
    assert!(written.is_empty(), "{written:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_edit_is_put_right() {
    let (world, _scene, _operator) = World::in_sync().await;
    world.merge("backend", "somebody", json!({ "stringData": { "A": "wrong" } })).await;
    world.holds("backend", &[("A", "1")]).await;
    world.merge("backend", "somebody", json!({ "data": null })).await;
    world.holds("backend", &[("A", "1")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_made_again_is_filled_again() {
    let (world, scene, _operator) = World::in_sync().await;
    world.delete("backend").await;
    holds("the stream is closed", || scene.streams() == 0).await;
    world.bind("backend", &scene).await;
    world.holds("backend", &[("A", "1")]).await;
    // At once, so that the operator may see both as one.
    world.delete("backend").await;
    world.bind("backend", &scene).await;
    world.holds("backend", &[("A", "1")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_stream_however_often_secrets_change_and_none_without_annotation() {
    let (world, scene, operator) = World::in_sync().await;
    for name in ["second", "third"] {
        world.bind(name, &scene).await;
        world.holds(name, &[("A", "1")]).await;
    }
    for number in 0..20 {
        world.merge("second", "somebody", json!({ "metadata": { "labels": { "number": number.to_string() } } })).await;
    }
    scene.set("A", "2");
    let all = ["backend", "second", "third"];
    for name in all {
        world.holds(name, &[("A", "2")]).await;
    }
    assert_eq!(scene.streams(), 1);
    operator.counts("konverge_pull_streams 1").await;

    for name in all {
        world.annotate(name, json!({})).await;
    }
    holds("the stream is closed", || scene.streams() == 0).await;
    operator.counts("konverge_pull_streams 0").await;
    scene.set("A", "3");
    world.stays("backend", &[&operator]).await;
    world.holds("backend", &[("A", "2")]).await;

    world.bind("backend", &scene).await;
    world.holds("backend", &[("A", "3")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_moved_to_another_environment_leaves_the_first() {
    let (world, scene, _operator) = World::in_sync().await;
    let other = world.server.create("staging");
    other.set("B", "2");
    world.bind("backend", &other).await;
    world.holds("backend", &[("B", "2")]).await;
    holds("the first stream is closed", || scene.streams() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_agree() {
    let (world, scene, first) = World::in_sync().await;
    let second = world.operator(&[]).await;
    second.counts("konverge_pull_streams 1").await;
    for number in 2..6 {
        scene.set("A", number.to_string());
        world.holds("backend", &[("A", &number.to_string())]).await;
    }
    // Each may have written the last change; after two polls each they have nothing more to say.
    let lists = scene.lists();
    holds("some polls", || scene.lists() >= lists + 4).await;
    world.stays("backend", &[&first, &second]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_when_the_leader_stops() {
    let world = World::new().await;
    let scene = world.server.create("production");
    scene.set("A", "1");
    world.bind("backend", &scene).await;
    let leader = world.operator(&["--leader-election"]).await;
    world.holds("backend", &[("A", "1")]).await;
    let standby = world.operator(&["--leader-election"]).await;
    holds("both follow", || scene.streams() == 2).await;
    scene.set("A", "2");
    world.holds("backend", &[("A", "2")]).await;
    assert_eq!(standby.count(r#"konverge_pull_syncs_total{result="changed"}"#), 0);
    leader.stop().await;
    scene.set("A", "3");
    world.holds("backend", &[("A", "3")]).await;
    standby.counts(r#"konverge_pull_syncs_total{result="changed"} 1"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_changes_becomes_few_writes() {
    let (world, scene, operator) = World::in_sync().await;
    for number in 0..200 {
        scene.set(&format!("K{number}"), "v");
        tokio::task::yield_now().await;
    }
    until("all keys", async || {
        let held = world.data("backend").await.len();
        if held == 201 { Ok(()) } else { Err(held) }
    })
    .await;
    operator.settled().await;
    let writes = operator.count(r#"konverge_pull_syncs_total{result="changed"}"#);
    assert!(writes <= 12, "{writes} writes for one burst");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_original_operator_wrote_becomes_ours() {
    let world = World::new().await;
    let scene = world.server.create("production");
    scene.set("A", "1");
    world.bind("backend", &scene).await;
    // Its way: merge patches of the data under the same name.
    let patch = json!({ "data": { "A": "b2xk", "STALE": "b2xk" } });
    world.merge("backend", "zopp-operator", patch).await;
    world.merge("backend", "somebody", json!({ "stringData": { "FOREIGN": "x" } })).await;
    let operator = world.operator(&[]).await;
    world.holds("backend", &[("A", "1"), ("FOREIGN", "x")]).await;
    world.stays("backend", &[&operator]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_never_asked_for() {
    let (world, _scene, operator) = World::in_sync().await;
    world.apply("stranger", json!({ "stringData": { "PASSWORD": "hunter2" } })).await;
    world.bind("last", &world.server.create("other")).await;
    world.told("last", "EnvironmentEmpty").await;
    operator.settled().await;
    // That what the watch brings is metadata is shown end to end, where every request of the operator is recorded.
    let entries = world.audit_log().await.entries().unwrap();
    let asked: Vec<_> = entries.iter().filter(|entry| world.is_about(entry, "stranger")).collect();
    assert_eq!(asked.len(), 1, "the user's own apply: {asked:?}");
}

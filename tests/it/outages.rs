//! Killing any part at any moment and starting it again ends in the same state.

use std::time::Duration;

use konverge_e2e::{Operator, Stage, Watcher};

/// Reconnection takes at most half a minute of back-off, and the API server some ten seconds to start.
const RECOVERED: Duration = Duration::from_secs(90);

struct Scene {
    stage: Stage,
    operator: Operator,
    watcher: Watcher,
    environment: String,
}

/// A Secret in step with an environment of the keys A and B.
async fn scene() -> Scene {
    let stage = Stage::set_on_ours().await.unwrap();
    let namespace = stage.control_plane.namespace("outage").await.unwrap();
    let environment = stage.environment("production").await.unwrap();
    let operator = stage.operator("zopp-operator", &namespace).await.unwrap();
    let watcher = stage.watcher(&namespace);
    stage.bind(&namespace, "backend", &environment).await.unwrap();
    stage.user.set(&environment, "A", b"1").await.unwrap();
    stage.user.set(&environment, "B", b"2").await.unwrap();
    watcher.holds("backend", RECOVERED, &[("A", "1"), ("B", "2")]).await.unwrap();
    Scene { stage, operator, watcher, environment }
}

impl Scene {
    /// Changes one key and deletes the other, so that what was missed includes a deletion.
    async fn change(&self) {
        self.stage.user.set(&self.environment, "A", b"changed").await.unwrap();
        self.stage.user.delete(&self.environment, "B").await.unwrap();
    }

    async fn converges(&self) {
        self.watcher.holds("backend", RECOVERED, &[("A", "changed")]).await.unwrap();
    }
}

#[tokio::test]
async fn changes_made_while_the_operator_was_dead_arrive_and_nothing_is_written_twice() {
    let mut scene = scene().await;
    scene.operator.process().kill();
    scene.change().await;
    scene.operator.process().start_again().unwrap();
    scene.converges().await;

    // A restart without a change reads once and writes nothing.
    let before = scene.watcher.now("backend").unwrap().resource_version;
    scene.operator.process().kill();
    scene.operator.process().start_again().unwrap();
    scene.operator.metric_becomes("konverge_pull_syncs_total", "unchanged", |count| count >= 1.0).await.unwrap();
    assert_eq!(scene.watcher.now("backend").unwrap().resource_version, before);
}

#[tokio::test]
async fn an_operator_killed_while_changes_stream_in_ends_right() {
    let mut scene = scene().await;
    for round in 0..5 {
        let value = format!("round {round}");
        let set = scene.stage.user.set(&scene.environment, "A", value.as_bytes());
        let (set, ()) = tokio::join!(set, async { scene.operator.process().kill() });
        set.unwrap();
        scene.operator.process().start_again().unwrap();
    }
    scene.watcher.holds("backend", RECOVERED, &[("A", "round 4"), ("B", "2")]).await.unwrap();
}

#[tokio::test]
async fn the_server_may_die_and_come_back() {
    let mut scene = scene().await;
    scene.stage.server.kill();
    scene.operator.metric_becomes("konverge_pull_streams", "", |open| open == 0.0).await.unwrap();
    assert_eq!(
        scene.watcher.now("backend").unwrap().data.len(),
        2,
        "what a dead server cannot confirm is not taken away"
    );
    scene.stage.server.start_again().await.unwrap();
    scene.change().await;
    scene.converges().await;
    assert!(scene.operator.process().status().is_none(), "the operator stays up");
}

#[tokio::test]
async fn the_api_server_may_die_and_come_back() {
    let mut scene = scene().await;
    scene.stage.control_plane.kill_api_server().unwrap();
    scene.change().await;
    scene.stage.control_plane.start_api_server().await.unwrap().unwrap();
    scene.converges().await;
    assert!(scene.operator.process().status().is_none(), "the operator stays up");
}

#[tokio::test]
async fn an_operator_starts_while_everything_is_away() {
    let mut scene = scene().await;
    scene.operator.process().kill();
    scene.change().await;
    scene.stage.server.kill();
    scene.stage.control_plane.kill_api_server().unwrap();
    scene.operator.process().start_again().unwrap();
    scene.operator.metric_becomes("konverge_pull_streams", "", |open| open == 0.0).await.unwrap();
    let (ready, why) = scene.operator.get("/readyz").await.unwrap();
    assert_eq!(ready, 503, "{why}");
    assert_eq!(scene.operator.get("/healthz").await.unwrap().0, 200);

    scene.stage.control_plane.start_api_server().await.unwrap().unwrap();
    scene.stage.server.start_again().await.unwrap();
    scene.converges().await;
    scene.operator.ready().await.unwrap();
}

#[tokio::test]
async fn two_operators_at_once_have_the_effect_of_one() {
    let scene = scene().await;
    let namespace = scene.stage.control_plane.namespace("unused").await.unwrap();
    let second = scene.stage.operator("second-operator", &namespace).await.unwrap();
    drop(second);
    // Both look after all namespaces.
    let mut second = scene.stage.operator_with("second-operator", &[]).unwrap();
    second.ready().await.unwrap();
    scene.change().await;
    scene.converges().await;
    let settled = scene.watcher.now("backend").unwrap().resource_version;
    second.metric_becomes("konverge_pull_syncs_total", "", |count| count >= 2.0).await.unwrap();
    assert_eq!(scene.watcher.now("backend").unwrap().resource_version, settled, "they do not write in turn");
}

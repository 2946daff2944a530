//! Killing any part at any moment and starting it again ends in the same state.

use std::time::Duration;

use konverge_e2e::{Operator, Stage, Watcher};
use konverge_testkit::{AuditLog, eventually};

/// Reconnection takes at most half a minute of back-off, and the API server some ten seconds to start.
const RECOVERED: Duration = Duration::from_secs(90);

struct Scene {
    stage: Stage,
    operator: Operator,
    watcher: Watcher,
    environment: String,
}

/// A Secret in sync with an environment of the keys A and B.
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

    /// The audit log of what is asked from now on.
    async fn audit_from_now(&self) -> AuditLog {
        let log = self.stage.control_plane.audit_log().unwrap();
        log.catch_up(self.stage.client()).await.unwrap();
        log.from_now().unwrap()
    }

    /// How often operators wrote a Secret; also an apply that changes nothing counts, of which no resourceVersion tells.
    async fn writes_since(&self, rest: &AuditLog) -> usize {
        rest.catch_up(self.stage.client()).await.unwrap();
        let asked = rest.entries_of(self.stage.operator_user()).unwrap();
        asked.iter().filter(|entry| entry.object_ref.resource == "secrets" && entry.is_mutating()).count()
    }

    /// Sets A to the value, with retries until the server accepts it.
    async fn set_until_taken(&self, value: &str) {
        let set = async || self.stage.user.set(&self.environment, "A", value.as_bytes()).await.ok();
        eventually(RECOVERED, set).await.unwrap();
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
    let rest = scene.audit_from_now().await;
    scene.operator.process().kill();
    scene.operator.process().start_again().unwrap();
    scene.operator.metric_becomes("konverge_pull_syncs_total", "unchanged", |count| count >= 1.0).await.unwrap();
    assert_eq!(scene.writes_since(&rest).await, 0);
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
async fn a_server_killed_while_changes_stream_in_ends_right() {
    let mut scene = scene().await;
    for round in 0..5 {
        let value = format!("round {round}");
        // Killed somewhere between the command's start and its end; what was not confirmed is set again.
        let set = scene.stage.user.set(&scene.environment, "A", value.as_bytes());
        let server = &mut scene.stage.server;
        let kill = async {
            tokio::time::sleep(Duration::from_millis(15 * round)).await;
            server.kill();
        };
        let (_, ()) = tokio::join!(set, kill);
        scene.stage.server.start_again().await.unwrap();
        scene.set_until_taken(&value).await;
    }
    scene.watcher.holds("backend", RECOVERED, &[("A", "round 4"), ("B", "2")]).await.unwrap();
    assert!(scene.operator.process().status().is_none(), "the operator stays up");
}

#[tokio::test]
async fn an_api_server_killed_while_changes_stream_in_ends_right() {
    let mut scene = scene().await;
    for round in 0..3 {
        let value = format!("round {round}");
        scene.set_until_taken(&value).await;
        // The operator is about to write, writes, or has written.
        tokio::time::sleep(Duration::from_millis(10 * round)).await;
        scene.stage.control_plane.kill_api_server().unwrap();
        scene.stage.control_plane.start_api_server().await.unwrap().unwrap();
    }
    scene.watcher.holds("backend", RECOVERED, &[("A", "round 2"), ("B", "2")]).await.unwrap();
    assert!(scene.operator.process().status().is_none(), "the operator stays up");
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
    let server = scene.stage.server.url();
    scene.stage.server.kill();
    scene.stage.control_plane.kill_api_server().unwrap();
    scene.operator.process().start_again().unwrap();
    // It has tried both and says so, as something that has only just started does not.
    let operator = &scene.operator;
    let tried = async || {
        let (code, why) = operator.get("/readyz").await.ok()?;
        assert_eq!(code, 503, "{why}");
        (why.contains("failing for") && why.contains(&server)).then_some(())
    };
    eventually(RECOVERED, tried).await.unwrap();
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
    let mut second = scene.stage.operator_with("second-operator", &["--poll-interval", "1"]).unwrap();
    second.ready().await.unwrap();
    // It is ready before its first look at the Secret, which would see the change and be its only one.
    second.metric_becomes("konverge_pull_syncs_total", "", |count| count >= 1.0).await.unwrap();
    scene.change().await;
    scene.converges().await;
    second.metric_becomes("konverge_pull_syncs_total", "", |count| count >= 2.0).await.unwrap();
    // Each may have written the change; from the poll after the next on they have nothing more to say.
    let polls = second.metric("konverge_pull_polls_total", "").await.unwrap();
    second.metric_becomes("konverge_pull_polls_total", "", |count| count >= polls + 2.0).await.unwrap();
    let polls = second.metric("konverge_pull_polls_total", "").await.unwrap();
    let rest = scene.audit_from_now().await;
    second.metric_becomes("konverge_pull_polls_total", "", |count| count >= polls + 3.0).await.unwrap();
    assert_eq!(scene.writes_since(&rest).await, 0, "they do not write in turn");
    assert_eq!(scene.watcher.now("backend").unwrap().data.len(), 1);
}

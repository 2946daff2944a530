//! Somebody else who writes the same fields (I2, I10): it ends, and is no race.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::stage::{LIMIT, Stage};

/// So often the other writes.
const ROUNDS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_takes_the_fields_away_by_force_gets_one_answer_each_time() {
    let stage = Stage::set("fighting").await;
    let begun = stage.proxy.mark();
    let theirs = PatchParams::apply("gitops").force();
    for round in 0..ROUNDS {
        let wanted = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "cms-app", "labels": { "gitops": "true" } },
            "data": { "value": format!("theirs {round}"), "own": "theirs" },
        });
        stage.copies().patch("cms-app", &theirs, &Patch::Apply(&wanted)).await.unwrap();
    }
    stage.converges("app", "0").await;
    // The next steps show that the last write was answered.
    stage.change("app", "1").await;
    stage.converges("app", "1").await;
    // One for each of theirs, and two for the change; the status had nothing new to say in between.
    let writes = stage.writes(begun);
    assert!(writes.len() <= ROUNDS + 2, "{} writes: {writes:#?}", writes.len());
    // Fields that only they own are left alone.
    let copy = stage.copies().get("cms-app").await.unwrap();
    assert_eq!(copy.data.unwrap()["own"], "theirs");
    assert_eq!(copy.metadata.labels.unwrap()["gitops"], "true");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_somebody_else_writes_is_put_right() {
    let stage = Stage::set("foreign-status").await;
    let begun = stage.proxy.mark();
    let lie = json!({ "status": { "ready": false, "message": "a lie" } });
    stage.syncs().patch_status("app", &PatchParams::default(), &Patch::Merge(lie)).await.unwrap();
    stage.change("app", "1").await;
    stage.converges("app", "1").await;
    let is_true = || async {
        let status = stage.syncs().get("app").await.unwrap().status.unwrap();
        (status.ready && status.message != "a lie").then_some(())
    };
    konverge_testkit::eventually(LIMIT, is_true).await.unwrap();
    assert!(stage.writes(begun).len() <= 3, "{:#?}", stage.writes(begun));
    stage.end().await;
}

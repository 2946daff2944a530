//! A workload that begins to use a Secret while it changes: one that came after the change has read the new content (I5).

use konverge_testkit::fault_proxy::{FaultProxy, Plan};

use crate::stage::{Stage, until};

/// Long enough for a Deployment to be made and seen.
const SLOWLY: &str = "
rules:
- { when: { phase: body, verbs: [watch], resources: [secrets] }, then: { delay: 2s } }
";

#[tokio::test(flavor = "multi_thread")]
async fn who_came_after_a_change_that_was_not_seen_yet_is_not_rolled_for_it() {
    let stage = Stage::shared().await;
    let view = stage.view("joining").await;
    view.secret("db", "1").await.unwrap();
    view.deployment("old", "db").await.unwrap();
    let proxy = FaultProxy::start(stage.plane.run_directory(), stage.kubeconfig()).await.unwrap();
    let operator = stage.start_through(proxy.kubeconfig(), &view.namespace, &[]).await;
    view.rolled("old", 0).await;
    proxy.set(Plan::parse(SLOWLY).unwrap()).unwrap();
    view.secret("db", "2").await.unwrap();
    view.deployment("new", "db").await.unwrap();
    view.rolled("old", 1).await;
    until("the watch of the Secret has told", async || Ok(proxy.fired() >= vec![1])).await;
    operator.settled().await;
    view.rolled("new", 0).await;
    view.secret("db", "3").await.unwrap();
    view.rolled("new", 1).await;
    view.rolled("old", 2).await;
}

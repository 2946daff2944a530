//! An operator that is started where the API server lags behind sees what was before what it has seen already (I4, I5, I6).

use kube::api::PostParams;
use tokio::time::sleep;

use crate::{
    past::Past,
    stage::{QUIET, Stage, until},
    view::ALL,
};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_rolled_since_is_not_rolled_again_and_what_is_gone_stays_so() {
    let stage = Stage::shared().await;
    let view = stage.view("past").await;
    let names = ["web", "gone", "other"];
    view.secret("db", "1").await.unwrap();
    for name in names {
        view.deployment(name, "db").await.unwrap();
    }
    let past = Past::serve(stage.plane.run_directory(), stage.kubeconfig()).await.unwrap();
    let mut operator = stage.start_through(past.kubeconfig(), &view.namespace, &[]).await;
    for name in names {
        view.rolled(name, 0).await;
    }
    view.secret("db", "2").await.unwrap();
    for name in names {
        view.rolled(name, 1).await;
    }
    // The lists of its start are what is told later.
    operator.crash().await;
    view.secret("db", "3").await.unwrap();
    for name in names {
        view.rolled(name, 2).await;
    }
    let before = view.seen("Deployment", "web").await.unwrap();
    view.delete("gone").await.unwrap();
    let mut other = view.api("Deployment").get("other").await.unwrap();
    view.delete("other").await.unwrap();
    other.metadata.uid = None;
    other.metadata.resource_version = None;
    other.metadata.managed_fields = None;
    other.metadata.annotations.as_mut().unwrap().remove(ALL);
    view.api("Deployment").create(&PostParams::default(), &other).await.unwrap();
    let other = view.seen("Deployment", "other").await.unwrap();

    past.begins();
    past.take_writes();
    operator.crash().await;
    // Each of them is, by what it sees, to be rolled for what the Secret holds now.
    let mut tried = Vec::new();
    until("each of them is tried", async || {
        tried.extend(past.take_writes());
        Ok(names.iter().all(|name| tried.iter().any(|(asked, _)| asked.ends_with(&format!("/{name}")))))
    })
    .await;
    // It goes on trying, so it does not settle.
    sleep(QUIET).await;
    tried.extend(past.take_writes());
    assert!(tried.iter().all(|(_, code)| *code == 409 || *code == 404), "{tried:?}");
    assert_eq!(view.seen("Deployment", "web").await.unwrap(), before);
    assert_eq!(view.seen("Deployment", "other").await.unwrap(), other);
    until("what is gone is not made again", async || {
        Ok(view.api("Deployment").get_metadata_opt("gone").await?.is_none())
    })
    .await;

    // Changes in between are seen once the server has caught up.
    view.secret("db", "4").await.unwrap();
    past.ends();
    view.rolled("web", 3).await;
    assert_eq!(view.seen("Deployment", "other").await.unwrap(), other);
}

//! Vault takes requests and never answers (W8, F19): nothing that is deleted waits longer for it than was said, and all comes when
//! it answers.

use futures::FutureExt;
use tokio::sync::watch;

use crate::{
    front::{self, FrontAction, FrontRequest},
    stage::{Stage, until},
};

/// How long an object that is being deleted may wait: for less than one request may take, which has a minute.
const DEADLINES: [&str; 2] = ["--finalizer-deadline=3s", "--terminating-namespace-deadline=3s"];

#[tokio::test(flavor = "multi_thread")]
async fn f19_a_vault_that_never_answers_keeps_no_object_and_loses_no_change() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("hung").await.unwrap();
    let view = stage.view(&namespace).await;
    let (hangs, hung) = watch::channel(false);
    let decide = move |_: FrontRequest| {
        let mut hung = hung.clone();
        async move {
            hung.wait_for(|hung| !hung).await.unwrap();
            FrontAction::Passes
        }
        .boxed()
    };
    let vault = front::serve(&stage.server, Box::new(decide)).await.unwrap();
    let mut operator = stage.start_at(&namespace, &vault, |spec| spec.args(DEADLINES)).await;
    let [kept, gone] = ["kept", "gone"].map(|name| (name, view.path(name)));
    for (name, path) in [&kept, &gone] {
        view.secret(name, &[("n", "1")], Some(path)).await.unwrap();
        until("it is in sync", async || view.is_synced("Secret", name, &[path]).await).await;
    }

    hangs.send(true).unwrap();
    view.secret(kept.0, &[("n", "2")], Some(&kept.1)).await.unwrap();
    view.delete("Secret", gone.0).await.unwrap();
    until("the deleted one is let go", async || view.is_gone("Secret", gone.0).await).await;
    assert!(view.holds(&kept.1, "n", "1").await.unwrap() && view.holds(&gone.1, "n", "1").await.unwrap());

    hangs.send(false).unwrap();
    until("what changed meanwhile comes", async || view.holds(&kept.1, "n", "2").await).await;
    until("what was left behind is cleared", async || Ok(view.read(&gone.1).await?.is_none())).await;
    assert_eq!(operator.process.status(), None, "it has not ended");
}

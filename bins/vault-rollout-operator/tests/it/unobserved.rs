//! Changes that begin and end before the operator sees them (F07; I2, I5, I6).

use konverge_testkit::fault_proxy::{FaultProxy, JournalEntry};
use kube::api::PostParams;
use serde_json::json;

use crate::{
    stage::{Result, Running, SOON, Stage, until},
    view::{ALL, Seen, View},
};

struct Scene {
    view: View,
    proxy: FaultProxy,
    operator: Running,
}

impl Scene {
    /// With a Deployment that was rolled once already, and another by which is seen that the operator has heard of all.
    async fn set(stage: &Stage, name: &str) -> Self {
        let view = stage.view(name).await;
        for (secret, user) in [("db", "web"), ("z", "last")] {
            view.secret(secret, "1").await.unwrap();
            view.deployment(user, secret).await.unwrap();
        }
        let proxy = FaultProxy::start(stage.plane.run_directory(), stage.kubeconfig()).await.unwrap();
        let operator = stage.start_through(proxy.kubeconfig(), &view.namespace, &[]).await;
        let scene = Self { view, proxy, operator };
        scene.view.rolled("web", 0).await;
        scene.view.rolled("last", 0).await;
        scene.view.secret("db", "2").await.unwrap();
        scene.view.rolled("web", 1).await;
        scene
    }

    /// A hidden object is shown in its present state, and is followed.
    async fn shows(&self) {
        self.proxy.show_outcome(SOON).await.unwrap();
        let times = self.view.templates("last").await.unwrap();
        self.view.secret("z", &format!("changed {times} times")).await.unwrap();
        self.view.rolled("last", times).await;
        self.operator.settled().await;
    }

    async fn seen(&self) -> Result<Seen> {
        self.view.seen("Deployment", "web").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_made_anew_unseen_rolls_only_with_another_value() {
    let stage = Stage::shared().await;
    let scene = Scene::set(stage, "anew").await;
    for (value, times) in [("2", 1), ("3", 2)] {
        scene.proxy.hide_changes(&["secrets"]).unwrap();
        scene.view.delete_secret("db").await.unwrap();
        scene.view.secret("db", value).await.unwrap();
        scene.shows().await;
        scene.view.rolled("web", times).await;
    }
    // Changed, and what it was again.
    scene.proxy.hide_changes(&["secrets"]).unwrap();
    let before = scene.seen().await.unwrap();
    for value in ["4", "3"] {
        scene.view.secret("db", value).await.unwrap();
    }
    scene.shows().await;
    assert_eq!(scene.seen().await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_is_taken_back_and_given_again_unseen_changes_nothing() {
    let stage = Stage::shared().await;
    let scene = Scene::set(stage, "word").await;
    let before = scene.seen().await.unwrap();
    scene.proxy.hide_changes(&["deployments.apps"]).unwrap();
    scene.view.workload("Deployment", "web", "db", json!({})).await.unwrap();
    scene.view.deployment("web", "db").await.unwrap();
    scene.shows().await;
    assert_eq!(scene.seen().await.unwrap(), before);
    scene.view.secret("db", "3").await.unwrap();
    scene.view.rolled("web", 2).await;
}

/// A Deployment of the same name is another one, even if it came with all that stood on the old one.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_made_anew_unseen_is_not_taken_for_the_old_one() {
    let stage = Stage::shared().await;
    let scene = Scene::set(stage, "other").await;
    for asks in [true, false] {
        let mut copy = scene.view.api("Deployment").get("web").await.unwrap();
        scene.proxy.hide_changes(&["deployments.apps"]).unwrap();
        let begun = scene.proxy.mark();
        scene.view.delete("web").await.unwrap();
        copy.metadata.uid = None;
        copy.metadata.resource_version = None;
        copy.metadata.managed_fields = None;
        if !asks {
            copy.metadata.annotations.as_mut().unwrap().remove(ALL);
        }
        scene.view.api("Deployment").create(&PostParams::default(), &copy).await.unwrap();
        let new = scene.seen().await.unwrap();
        assert!(new.content.is_some() && new.stamp.is_some(), "it came with all of it: {new:?}");
        scene.view.secret("db", if asks { "3" } else { "4" }).await.unwrap();
        let is_refused = |entry: &JournalEntry| {
            entry.request.name == "web" && entry.request.is_mutating() && entry.client_code == Some(409)
        };
        until("it tried to write what it believed to be its Deployment", async || {
            Ok(scene.proxy.requests_since(begun).entries().iter().any(is_refused))
        })
        .await;
        scene.shows().await;
        let now = scene.seen().await.unwrap();
        assert_eq!((now.changes, &now.stamp), (0, &new.stamp), "asks: {asks}");
        assert_eq!(now.content == new.content, !asks, "asks: {asks}: {now:?}");
    }
}

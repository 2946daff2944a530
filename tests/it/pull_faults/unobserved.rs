//! Changes that begin and end before the operator sees them (F07).

use k8s_openapi::api::core::v1::Secret;
use konverge_testkit::eventually;
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use super::scene::{LIMIT, Scene};
use crate::shared_stage::on_stage;

const SECRETS: &[&str] = &["secrets"];

/// I2: a Secret of that name that nobody bound is not written, whatever the operator believes.
#[test]
fn a_secret_that_was_made_anew_and_not_bound_is_left_alone() {
    on_stage(async |stage| {
        let scene = Scene::set(stage, "unbound").await;
        scene.proxy.hide_changes(SECRETS).unwrap();
        scene.secrets().delete("backend", &DeleteParams::default()).await.unwrap();
        let theirs = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "backend" }, "stringData": { "A": "theirs" },
        });
        let theirs: Secret = serde_json::from_value(theirs).unwrap();
        let theirs = scene.secrets().create(&PostParams::default(), &theirs).await.unwrap();
        let begun = scene.proxy.mark();
        scene.set_value("1").await;
        // It writes what it believes to be its Secret.
        let tried = || {
            let asked = scene.proxy.requests_since(begun);
            let is_answered = |entry: &konverge_testkit::fault_proxy::JournalEntry| {
                entry.request.name == "backend" && entry.request.is_mutating() && entry.client_code.is_some()
            };
            std::future::ready(asked.entries().iter().any(is_answered).then_some(()))
        };
        eventually(LIMIT, tried).await.unwrap();
        assert_eq!(scene.secrets().get("backend").await.unwrap(), theirs);
        scene.proxy.show_outcome(LIMIT).await.unwrap();
        // Another that is bound shows that the list was read.
        scene.bind("other").await;
        scene.holds("other", &[("A", "1")]).await;
        scene.set_value("2").await;
        scene.holds("other", &[("A", "2")]).await;
        scene.settles().await;
        assert_eq!(scene.secrets().get("backend").await.unwrap(), theirs);
        scene.end().await;
    });
}

/// I6: one that is bound is filled, though the old one was never seen to go.
#[test]
fn a_secret_that_was_made_anew_and_bound_is_filled() {
    on_stage(async |stage| {
        let scene = Scene::set(stage, "rebound").await;
        scene.proxy.hide_changes(SECRETS).unwrap();
        let begun = scene.proxy.mark();
        scene.secrets().delete("backend", &DeleteParams::default()).await.unwrap();
        let new = scene.bind("backend").await;
        scene.proxy.show_outcome(LIMIT).await.unwrap();
        scene.holds("backend", &[("A", "0")]).await;
        assert_eq!(scene.secrets().get("backend").await.unwrap().uid(), new.uid());
        scene.settles().await;
        assert_eq!(scene.writes(begun).len(), 1, "{:#?}", scene.writes(begun));
        scene.end().await;
    });
}

/// I5, I6: unbound, changed in the meantime and bound again; then what is right is written once, and what was right is not.
#[test]
fn a_binding_that_was_taken_away_and_put_back_is_the_same() {
    on_stage(async |stage| {
        let scene = Scene::set(stage, "put-back").await;
        scene.proxy.hide_changes(SECRETS).unwrap();
        let begun = scene.proxy.mark();
        let bare = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "backend" } });
        scene.apply("backend", bare.clone()).await;
        scene.bind("backend").await;
        scene.proxy.show_outcome(LIMIT).await.unwrap();
        scene.set_value("1").await;
        scene.holds("backend", &[("A", "1")]).await;
        scene.settles().await;
        assert_eq!(scene.writes(begun).len(), 1, "{:#?}", scene.writes(begun));

        // Edited and edited back: nothing is written but to take the key's ownership back.
        scene.proxy.hide_changes(SECRETS).unwrap();
        let begun = scene.proxy.mark();
        for value in ["wrong", "1"] {
            let edit = json!({ "stringData": { "A": value } });
            let patch = kube::api::Patch::Merge(&edit);
            scene.secrets().patch("backend", &kube::api::PatchParams::default(), &patch).await.unwrap();
        }
        scene.proxy.show_outcome(LIMIT).await.unwrap();
        scene.bind("last").await;
        scene.holds("last", &[("A", "1")]).await;
        scene.settles().await;
        let edited = scene.writes(begun).iter().filter(|write| write.contains("backend")).count();
        assert!(edited <= 1, "{:#?}", scene.writes(begun));
        scene.end().await;
    });
}

//! The search for content in Vault that no object requests: what it finds, and what it does when Vault refuses or fails.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_testkit::{Process, ProcessSpec, http_get};
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::{Value, json};

use crate::{
    front::{self, FrontAction, FrontRequest},
    stage::{Result, Stage, View, until},
};

/// An installation of its own, because its list of orphans is looked at, and a namespace.
struct Scene {
    stage: &'static Stage,
    view: View,
    home: String,
    kubeconfig: std::path::PathBuf,
}

impl Scene {
    async fn new(name: &str) -> Self {
        let stage = Stage::shared().await;
        let namespace = stage.plane.namespace(name).await.unwrap();
        let (home, kubeconfig) = stage.another(|manifest| manifest).await;
        Self { stage, view: stage.view(&namespace).await, home, kubeconfig }
    }

    /// Starts an operator that searches only the folder of the namespace. Returns its health address, too.
    fn start(&self, vault: &str, change: impl FnOnce(ProcessSpec) -> ProcessSpec) -> (Process, String) {
        let namespace = &self.view.namespace;
        let (spec, health, _) = self.stage.operator(&self.kubeconfig, namespace, vault);
        let spec = spec.args(["-deletion-grace=15s", "-allow-path", &format!("*=secret/data/{namespace}/*")]);
        (Process::start(self.stage.plane.run_directory(), change(spec)).unwrap(), health)
    }

    /// Starts an operator that writes these Secrets to paths of their names, and ends it.
    async fn write_by_an_operator(&self, paths: &[&String]) {
        let (mut operator, _) = self.start(self.stage.server.address(), |spec| spec);
        for (number, path) in paths.iter().enumerate() {
            let name = format!("db-{number}");
            self.view.secret(&name, &[("n", "1")], Some(path)).await.unwrap();
            until("it is in sync", async || self.view.is_synced("Secret", &name, &[path]).await).await;
        }
        operator.terminate(Duration::from_secs(20)).await.unwrap();
    }

    /// Replaces the Secret of this number as `kubectl replace` does: record and finalizer are gone at once.
    async fn replace(&self, number: usize, annotations: Value) {
        let name = format!("db-{number}");
        let metadata = json!({ "name": name, "annotations": annotations });
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": { "n": "1" } });
        let secret = serde_json::from_value(secret).unwrap();
        self.view.api("Secret").replace(&name, &PostParams::default(), &secret).await.unwrap();
    }

    async fn list(&self) -> Result<ConfigMap> {
        let lists = Api::<ConfigMap>::namespaced(self.view.client.clone(), &self.home);
        Ok(lists.get_opt("vault-sync-operator-orphans").await?.unwrap_or_default())
    }

    async fn is_listed(&self, path: &str) -> Result<bool> {
        Ok(self.list().await?.data.iter().flatten().any(|(_, text)| text.contains(&format!("{path:?}"))))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_at_a_path_that_an_object_left_while_the_operator_was_away_is_found_and_cleared() {
    let scene = Scene::new("moved").await;
    let [old, new] = ["old", "new"].map(|rest| scene.view.path(rest));
    scene.write_by_an_operator(&[&old]).await;
    scene.replace(0, json!({ "vault-sync.io/path": new })).await;
    let _operator = scene.start(scene.stage.server.address(), |spec| spec);
    until("the new path is in sync", async || scene.view.is_synced("Secret", "db-0", &[&new]).await).await;
    until("the old path is listed", async || scene.is_listed(&old).await).await;
    assert!(scene.view.holds(&old, "n", "1").await.unwrap(), "it is too early");
    until("the old path is cleared", async || Ok(scene.view.read(&old).await?.is_none())).await;
    until("no mark is left", async || Ok(!scene.view.versions(&old).await?.1)).await;
    assert!(scene.view.holds(&new, "n", "1").await.unwrap());
}

/// Two secrets whose objects are gone, in the folders `a` and `z`, and a Vault that answers a list of the folder `z` with a status as long as there is
/// one. Returns the address of that Vault, the status, and the folders that were listed.
async fn behind_a_front(scene: &Scene) -> (String, [String; 2], Arc<Mutex<Option<u16>>>, Arc<Mutex<Vec<String>>>) {
    let paths = ["a/db", "z/db"].map(|rest| scene.view.path(rest));
    scene.write_by_an_operator(&[&paths[0], &paths[1]]).await;
    for number in 0..2 {
        scene.replace(number, json!({})).await;
    }
    let (status, listed) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Vec::new())));
    let (answer, seen) = (Arc::clone(&status), Arc::clone(&listed));
    let decide = move |asked: FrontRequest| {
        let mut action = FrontAction::Passes;
        if let Some(folder) = asked.path.strip_suffix("/?list=true") {
            seen.lock().unwrap().push(folder.rsplit('/').next().unwrap().to_owned());
            if let Some(status) = *answer.lock().unwrap()
                && folder.ends_with("/z")
            {
                action = FrontAction::Answered(status, "");
            }
        }
        std::future::ready(action).boxed()
    };
    (front::serve(&scene.stage.server, Box::new(decide)).await.unwrap(), paths, status, listed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_vault_refuses_to_list_is_reported_and_the_others_are_searched() {
    let scene = Scene::new("refused").await;
    let (vault, [open, closed], status, _) = behind_a_front(&scene).await;
    *status.lock().unwrap() = Some(403);
    let refusal = async || -> Result<Option<String>> {
        Ok(scene.list().await?.annotations().get("vault-sync.io/search-refused").cloned())
    };
    let (mut operator, health) = scene.start(&vault, |spec| spec);
    until("the list of orphans says so", async || Ok(refusal().await?.is_some_and(|why| why.contains("/z")))).await;
    until("the open folder was searched", async || scene.is_listed(&open).await).await;
    let ready = http_get(&health, "/readyz?verbose").await.unwrap();
    assert!(ready.1.contains("search") && ready.1.contains("/z"), "{ready:?}");
    assert_eq!(ready.0, 200, "{ready:?}");
    assert!(!scene.is_listed(&closed).await.unwrap());
    // Operators of other tests may write to the same log.
    let (said, namespace) = (operator.logged(), &scene.view.namespace);
    let is_told = |line: &&str| line.contains("stays unnoticed") && line.contains(&**namespace);
    assert_eq!(said.lines().filter(is_told).count(), 1, "{said}");
    operator.terminate(Duration::from_secs(20)).await.unwrap();

    *status.lock().unwrap() = None;
    let _operator = scene.start(&vault, |spec| spec);
    until("the other folder was searched", async || scene.is_listed(&closed).await).await;
    until("the refusal is gone", async || Ok(refusal().await?.is_none())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_continues_after_a_failed_request_and_lists_no_folder_again() {
    let scene = Scene::new("failing").await;
    let (vault, [open, failing], status, listed) = behind_a_front(&scene).await;
    *status.lock().unwrap() = Some(503);
    let _operator = scene.start(&vault, |spec| spec);
    until("the other folder was searched", async || scene.is_listed(&open).await).await;
    assert!(!scene.is_listed(&failing).await.unwrap());
    *status.lock().unwrap() = None;
    until("the folder was searched", async || scene.is_listed(&failing).await).await;
    let mut listed = listed.lock().unwrap().clone();
    assert!(listed.iter().filter(|folder| *folder == "z").count() > 1, "the request failed at first: {listed:?}");
    listed.retain(|folder| folder != "z");
    listed.sort();
    assert_eq!(listed, ["a", &*scene.view.namespace], "the search did not begin again");
}

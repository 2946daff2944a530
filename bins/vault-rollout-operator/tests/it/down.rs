//! Changes while the operator is down are rolled once when it is back, whichever fault follows (F01, F02; I5, I6, A15).

use std::sync::{Arc, Mutex};

use konverge_testkit::{
    Process,
    fault_proxy::{FaultProxy, Plan},
};

use crate::{
    stage::{Result, Stage, operator, settled, until},
    view::{Seen, View},
};

/// The fault of the first write after the start.
const FAULTS: [&str; 4] = [
    "",
    "- { when: { resources: [deployments.apps], mutating: true, nth: 1 }, then: { kill: operator } }",
    "- { when: { phase: after, resources: [deployments.apps], mutating: true, nth: 1 }, then: { kill: operator } }",
    "- { when: { phase: after, resources: [deployments.apps], mutating: true, nth: 1 }, then: drop }",
];

/// An operator behind a proxy that may kill it, and that is started again only by the test.
struct Scene {
    view: View,
    proxy: FaultProxy,
    process: Arc<Mutex<Process>>,
    /// Where the operator serves its health and metrics.
    address: String,
}

impl Scene {
    /// With a Deployment that was rolled once already, so that it has a stamp.
    async fn set(stage: &Stage, name: &str) -> Self {
        let view = stage.view(name).await;
        view.secret("db", "1").await.unwrap();
        view.deployment("web", "db").await.unwrap();
        let proxy = FaultProxy::start(stage.plane.run_directory(), stage.kubeconfig()).await.unwrap();
        let (spec, address) = operator(proxy.kubeconfig(), &view.namespace);
        let process = Arc::new(Mutex::new(Process::start(stage.plane.run_directory(), spec).unwrap()));
        let killed = Arc::clone(&process);
        proxy.on_kill("operator", move || killed.lock().unwrap().kill());
        let scene = Self { view, proxy, process, address };
        scene.view.rolled("web", 0).await;
        scene.view.secret("db", "2").await.unwrap();
        scene.view.rolled("web", 1).await;
        scene
    }

    fn kill(&self) {
        self.process.lock().unwrap().kill();
    }

    /// Starts it, and again as often as the plan kills it. Returns when the fault has befallen it and it has had time to write.
    async fn starts(&self, fault: &str) {
        self.proxy.set(Plan::parse(&format!("rules:\n{fault}")).unwrap()).unwrap();
        self.process.lock().unwrap().start_again().unwrap();
        if fault.contains("kill") {
            until("it was killed", async || Ok(self.process.lock().unwrap().pid().is_none())).await;
            self.process.lock().unwrap().start_again().unwrap();
        }
    }

    async fn seen(&self) -> Result<Seen> {
        self.view.seen("Deployment", "web").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_twice_while_it_is_down_is_rolled_once_whatever_befalls_that() {
    let stage = Stage::shared().await;
    let scene = Scene::set(stage, "down").await;
    for (turn, fault) in FAULTS.into_iter().enumerate() {
        scene.kill();
        for change in ["a", "b"] {
            scene.view.secret("db", &format!("{turn} {change}")).await.unwrap();
        }
        scene.starts(fault).await;
        scene.view.rolled("web", turn + 2).await;
        settled(&scene.address).await;
        assert!(scene.view.is_rolled("web", turn + 2).await.unwrap(), "{fault}: {:?}", scene.seen().await);
        let fired = scene.proxy.fired();
        assert!(fired.iter().all(|count| *count == 1) && fired.len() == usize::from(!fault.is_empty()), "{fired:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_and_comes_back_while_it_is_down_is_no_change() {
    let stage = Stage::shared().await;
    let scene = Scene::set(stage, "back").await;
    let before = scene.seen().await.unwrap();
    scene.kill();
    for value in ["3", "2"] {
        scene.view.secret("db", value).await.unwrap();
    }
    scene.view.delete_secret("db").await.unwrap();
    scene.view.secret("db", "2").await.unwrap();
    let begun = scene.proxy.mark();
    scene.starts("").await;
    until("it has read the Secret", async || {
        let asked = scene.proxy.requests_since(begun);
        let is_read = |entry: &konverge_testkit::fault_proxy::JournalEntry| {
            entry.request.resource == "secrets" && entry.request.name == "db" && entry.client_code == Some(200)
        };
        Ok(asked.entries().iter().any(is_read))
    })
    .await;
    settled(&scene.address).await;
    assert_eq!(scene.seen().await.unwrap(), before);
    assert_eq!(scene.proxy.requests_since(begun).writes(), [""; 0]);
}

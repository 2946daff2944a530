//! A namespace, its operator behind a proxy, a Secret in sync, and a neighbour that nobody may touch.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use konverge_e2e::{Operator, Stage, Watcher, annotated_secret};
use konverge_testkit::{
    fault_proxy::{FaultProxy, Plan},
    http_get, settled,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

/// From the end of a fault to convergence: a pause of half a minute at most, and what a busy machine needs.
pub(super) const LIMIT: Duration = Duration::from_mins(1);

/// An operator that has done nothing for so long has settled: longer than the interval of its polls.
const QUIET: Duration = Duration::from_secs(3);

/// Seconds between two polls, so that what a stream missed comes soon.
const POLL: [&str; 2] = ["--poll-interval", "2"];

pub(super) struct Scene {
    pub(super) stage: &'static Stage,
    pub(super) proxy: FaultProxy,
    pub(super) operator: Operator,
    pub(super) watcher: Watcher,
    pub(super) environment: String,
    pub(super) namespace: String,
    foreign: Secret,
}

/// An operator behind a proxy of its own.
pub(super) struct Replica {
    pub(super) proxy: FaultProxy,
    pub(super) operator: Operator,
}

impl Scene {
    /// With a Secret `backend` in sync with an environment where A is 0.
    pub(super) async fn set(stage: &'static Stage, name: &str) -> Self {
        Self::set_in(&[], stage, name, &[]).await
    }

    /// With more arguments.
    pub(super) async fn set_with(stage: &'static Stage, name: &str, arguments: &[&str]) -> Self {
        Self::set_in(&[], stage, name, arguments).await
    }

    /// The same, and the operator has these variables.
    pub(super) async fn set_in(
        variables: &[(&str, &str)],
        stage: &'static Stage,
        name: &str,
        arguments: &[&str],
    ) -> Self {
        let namespace = stage.control_plane.namespace(name).await.unwrap();
        let environment = stage.environment(name).await.unwrap();
        stage.user.set(&environment, "A", b"0").await.unwrap();
        let Replica { proxy, operator } = replica(variables, stage, name, &namespace, arguments).await;
        let watcher = stage.watcher(&namespace);
        let secrets = Api::<Secret>::namespaced(stage.client().clone(), &namespace);
        let foreign = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "foreign" }, "stringData": { "A": "theirs" },
        });
        let foreign = secrets.patch("foreign", &PatchParams::apply("user"), &Patch::Apply(&foreign)).await.unwrap();
        let scene = Self { stage, proxy, operator, watcher, environment, namespace, foreign };
        scene.bind("backend").await;
        scene.holds("backend", &[("A", "0")]).await;
        scene
    }

    /// Another replica, and what it is to be called.
    pub(super) async fn replica(&self, name: &str, arguments: &[&str]) -> Replica {
        replica(&[], self.stage, name, &self.namespace, arguments).await
    }

    pub(super) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.stage.client().clone(), &self.namespace)
    }

    /// Applies, as a user, a Secret that is bound to the environment.
    pub(super) async fn bind(&self, name: &str) -> Secret {
        self.apply(name, annotated_secret(name, &self.environment)).await
    }

    /// Applies, as a user, a Secret with this and nothing else.
    pub(super) async fn apply(&self, name: &str, manifest: Value) -> Secret {
        let parameters = PatchParams::apply("user").force();
        self.secrets().patch(name, &parameters, &Patch::Apply(&manifest)).await.unwrap()
    }

    /// Sets a key of the environment.
    pub(super) async fn set_value(&self, value: &str) {
        self.stage.user.set(&self.environment, "A", value.as_bytes()).await.unwrap();
    }

    /// Waits until a Secret holds exactly this.
    pub(super) async fn holds(&self, name: &str, expected: &[(&str, &str)]) {
        self.holds_within(LIMIT, name, expected).await;
    }

    /// The same with another limit.
    pub(super) async fn holds_within(&self, limit: Duration, name: &str, expected: &[(&str, &str)]) {
        if let Err(error) = self.watcher.holds(name, limit, expected).await {
            panic!("{error:#}; {:?}", self.proxy.fired());
        }
    }

    /// Puts a plan in force.
    pub(super) fn befalls(&self, rules: &str) {
        self.proxy.set(Plan::parse(&format!("seed: 11\nrules:\n{rules}")).unwrap()).unwrap();
    }

    /// Waits until the operator has nothing left to do, so that the test can say what it has not done.
    pub(super) async fn settles(&self) {
        settled(QUIET, async || http_get(self.operator.metrics_address(), "/metrics").await.unwrap().1).await;
    }

    /// How often Secrets were written since the mark.
    pub(super) fn writes(&self, mark: usize) -> Vec<String> {
        self.proxy.requests_since(mark).writes()
    }

    /// The invariants after every bad day.
    pub(super) async fn end(mut self) {
        let process = self.operator.process();
        assert!(process.status().is_none(), "the operator has ended:\n{}", process.logged());
        assert_eq!(
            self.secrets().get("foreign").await.unwrap(),
            self.foreign,
            "what is not the operator's was touched"
        );
        let journal = self.proxy.journal();
        assert!(!journal.iter().any(|entry| entry.request.name == "foreign"), "it was even read");
    }
}

async fn replica(
    variables: &[(&str, &str)],
    stage: &Stage,
    name: &str,
    namespace: &str,
    arguments: &[&str],
) -> Replica {
    let run = stage.control_plane.run_directory();
    let proxy = FaultProxy::start(run, stage.operator_kubeconfig()).await.unwrap();
    let arguments = [&["--namespace", namespace], POLL.as_slice(), arguments].concat();
    let (server, credentials) = (stage.server.url(), stage.credentials());
    let kubeconfig = proxy.kubeconfig();
    let mut operator = Operator::start_in(variables, run, name, kubeconfig, &server, credentials, &arguments).unwrap();
    operator.ready().await.unwrap();
    Replica { proxy, operator }
}

//! Bad input to the operator: one test per input.
//!
//! Where the input is that of one Secret, the test shows its event and its metric. It also shows that the data already in the
//! Secret stays, and that another Secret of the same operator follows its environment meanwhile. Where it is the server's, all
//! Secrets are told and all keep their data. An operator that was given what it cannot begin with has neither events nor metrics:
//! it ends, says in its log why and what to do, and has touched nothing.

mod of_a_secret;
mod of_the_operator;

use std::time::Duration;

use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use konverge_e2e::{Operator, Stage, Watcher, annotated_secret};
use konverge_testkit::eventually;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::Value;

const SOON: Duration = Duration::from_mins(1);

/// How soon the other Secret has to follow: far less than any timeout that the bad one might run into.
const UNDELAYED: Duration = Duration::from_secs(3);

/// For gauges, which count whole things.
fn is(expected: u32) -> impl Fn(f64) -> bool {
    move |value| (value - f64::from(expected)).abs() < 0.5
}

/// Runs on the stage that others are on too.
fn on_stage(name: &str, test: impl AsyncFnOnce(Scene)) {
    crate::shared_stage::on_stage(async |stage| test(Scene::set(stage, name).await).await);
}

/// A namespace with the healthy Secret `good`, and an operator that looks after it.
struct Scene {
    stage: &'static Stage,
    name: String,
    namespace: String,
    operator: Operator,
    watcher: Watcher,
    good: String,
}

impl Scene {
    async fn set(stage: &'static Stage, name: &str) -> Self {
        let namespace = stage.control_plane.namespace(name).await.unwrap();
        let good = stage.environment(&format!("{name}-good")).await.unwrap();
        let operator = stage.operator(&format!("operator-{name}"), &namespace).await.unwrap();
        let watcher = stage.watcher(&namespace);
        let scene = Self { stage, name: name.to_owned(), namespace, operator, watcher, good };
        scene.bind("good", &scene.good).await;
        scene.good_follows("0").await;
        scene
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.stage.client().clone(), &self.namespace)
    }

    /// Creates an environment that the operator may read, with one key, and a Secret in sync with it.
    async fn in_sync(&self) -> String {
        let environment = self.stage.environment(&self.name).await.unwrap();
        self.stage.user.set(&environment, "A", b"1").await.unwrap();
        self.bind("bad", &environment).await;
        self.holds("bad", &[("A", "1")]).await;
        environment
    }

    async fn bind(&self, name: &str, environment: &str) {
        self.apply(name, annotated_secret(name, environment)).await;
    }

    async fn apply(&self, name: &str, manifest: Value) {
        let parameters = PatchParams::apply("user").force();
        self.secrets().patch(name, &parameters, &Patch::Apply(&manifest)).await.unwrap();
    }

    async fn merge(&self, name: &str, patch: Value) {
        self.secrets().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    async fn holds(&self, name: &str, expected: &[(&str, &str)]) {
        self.watcher.holds(name, SOON, expected).await.unwrap();
    }

    /// Waits for the event with this reason on the Secret `bad`, and checks that the text has all of these.
    async fn told(&self, reason: &str, parts: &[&str]) {
        self.told_on("bad", reason, parts).await;
    }

    /// Waits for the event with this reason on the Secret that has this name now, not on one before it.
    async fn told_on(&self, name: &str, reason: &str, parts: &[&str]) {
        let note = eventually(SOON, async || self.events(name, reason).await.into_iter().next());
        let (note, _) = note.await.unwrap_or_else(|error| panic!("no event {reason} on {name}: {error}"));
        for part in parts {
            assert!(note.contains(part), "{part:?} is not in the event: {note}");
        }
        assert!(reason == "Synced" || note.len() > 40, "too short to help anybody: {note}");
    }

    /// Text of each event with this reason on the Secret that has this name now, and how often it was told.
    async fn events(&self, name: &str, reason: &str) -> Vec<(String, i32)> {
        let uid = self.secrets().get(name).await.unwrap().metadata.uid;
        let events = Api::<Event>::namespaced(self.stage.client().clone(), &self.namespace);
        let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
        let these = events.filter(|event| {
            event.reason.as_deref() == Some(reason) && event.regarding.as_ref().is_some_and(|object| object.uid == uid)
        });
        these.map(|event| (event.note.unwrap_or_default(), event.series.map_or(1, |series| series.count))).collect()
    }

    /// Waits until the gauge of bindings says that one is in this state.
    async fn counted(&self, reason: &str) {
        let label = format!("reason=\"{reason}\"");
        self.operator.metric_becomes("konverge_pull_bindings", &label, is(1)).await.unwrap();
    }

    /// The healthy Secret follows a change at once.
    async fn good_follows(&self, value: &str) {
        self.stage.user.set(&self.good, "GOOD", value.as_bytes()).await.unwrap();
        self.watcher.holds("good", UNDELAYED, &[("GOOD", value)]).await.unwrap();
    }
}

//! An operator in this process between a real API server and a scripted zopp server.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use clap::Parser;
use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use konverge_core::outage::LONGEST_PAUSE;
use konverge_pull::{config::Config, run::assemble};
use konverge_runtime::{Metrics, checks::Checks};
pub(crate) use konverge_testkit::until;
use konverge_testkit::{AuditEntry, AuditLog, ControlPlane, Options, events_about, metric, settled, until_true};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, task::JoinHandle, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::scripted::{Scene, Scripted};

/// An operator that has done nothing for so long has settled: longer than the interval of its polls.
pub(crate) const QUIET: Duration = Duration::from_millis(1200);

/// One for all tests of this binary; it ends with the process. It is ours even when a cluster is named: a test reads its audit log.
pub(crate) async fn control_plane() -> &'static ControlPlane {
    static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    CONTROL_PLANE.get_or_init(|| async { ControlPlane::start(Options::ours()).await.unwrap() }).await
}

/// A namespace, a zopp server, and a person with `kubectl`.
pub(crate) struct World {
    pub(crate) server: Scripted,
    pub(crate) namespace: String,
    zopp: konverge_zopp_client::Client,
    pub(crate) kubernetes: Client,
}

/// An operator that runs until it is dropped or stopped.
pub(crate) struct Operator {
    metrics: Metrics,
    checks: Checks,
    shutdown: DropGuard,
    running: JoinHandle<()>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(control_plane().await).await
    }

    /// The same on a control plane that is not that of the others.
    pub(crate) async fn on(control_plane: &ControlPlane) -> Self {
        let (server, zopp) = Scripted::start().await;
        let namespace = control_plane.namespace("pull").await.unwrap();
        Self { server, namespace, zopp, kubernetes: control_plane.admin_client().await.unwrap() }
    }

    /// A world with an environment that holds `A=1`, a Secret bound to it, and an operator that has synced it.
    pub(crate) async fn in_sync() -> (Self, Arc<Scene>, Operator) {
        let world = Self::new().await;
        let scene = world.server.create("production");
        scene.set("A", "1");
        world.bind("backend", &scene).await;
        let operator = world.operator(&[]).await;
        world.holds("backend", &[("A", "1")]).await;
        (world, scene, operator)
    }

    /// Starts an operator that polls every second, for this world's namespace.
    pub(crate) async fn operator(&self, arguments: &[&str]) -> Operator {
        self.operator_by(control_plane().await.kubeconfig(), arguments).await
    }

    /// Starts an operator that has only the memory in the cluster, as after a restart.
    pub(crate) async fn restarted(&self, arguments: &[&str]) -> Operator {
        self.operator_of(self.server.client(), control_plane().await.kubeconfig(), arguments).await
    }

    /// Starts an operator without a connection to zopp.
    pub(crate) async fn restarted_without_zopp(&self, arguments: &[&str]) -> Operator {
        self.operator_of(None, control_plane().await.kubeconfig(), arguments).await
    }

    /// Starts an operator that reaches the API server as this kubeconfig says.
    pub(crate) async fn operator_by(&self, kubeconfig: &Path, arguments: &[&str]) -> Operator {
        self.operator_of(self.zopp.clone(), kubeconfig, arguments).await
    }

    /// Starts an operator with this client of zopp.
    pub(crate) async fn operator_of(
        &self,
        zopp: impl Into<Option<konverge_zopp_client::Client>>,
        kubeconfig: &Path,
        arguments: &[&str],
    ) -> Operator {
        let kubeconfig = kubeconfig.to_str().unwrap();
        let common = ["zopp-operator", "--health-addr", "127.0.0.1:0", "--namespace", &self.namespace];
        let rest = ["--poll-interval", "1s", "--kubeconfig", kubeconfig];
        let config = Config::try_parse_from([&common, rest.as_slice(), arguments].concat()).unwrap();
        let manager = assemble(config, zopp.into()).await.unwrap();
        let (metrics, checks, shutdown) = (manager.metrics().clone(), manager.checks().clone(), manager.shutdown());
        let running = tokio::spawn(async { manager.run().await.unwrap() });
        Operator { metrics, checks, shutdown: CancellationToken::drop_guard(shutdown), running }
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.kubernetes.clone(), &self.namespace)
    }

    /// Applies, as a user does, a Secret with the four annotations and nothing else.
    pub(crate) async fn bind(&self, name: &str, scene: &Scene) {
        let environment = scene.name();
        self.annotate(
            name,
            json!({
                "zopp.dev/sync": "true",
                "zopp.dev/workspace": environment.workspace,
                "zopp.dev/project": environment.project,
                "zopp.dev/environment": environment.environment,
            }),
        )
        .await;
    }

    /// Applies, as a user does, a Secret with exactly these annotations.
    pub(crate) async fn annotate(&self, name: &str, annotations: Value) {
        self.apply(name, json!({ "metadata": { "annotations": annotations } })).await;
    }

    /// Applies, as the user `user`, what is given.
    pub(crate) async fn apply(&self, name: &str, mut object: Value) {
        object["apiVersion"] = "v1".into();
        object["kind"] = "Secret".into();
        object["metadata"]["name"] = name.into();
        self.secrets().patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
    }

    /// Merges a patch in the name of a field manager.
    pub(crate) async fn merge(&self, name: &str, manager: &str, patch: Value) {
        let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        self.secrets().patch(name, &parameters, &Patch::Merge(&patch)).await.unwrap();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.secrets().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn data(&self, name: &str) -> BTreeMap<String, String> {
        let found = self.secrets().get_opt(name).await.unwrap();
        let data = found.and_then(|secret| secret.data).unwrap_or_default();
        data.into_iter().map(|(key, value)| (key, String::from_utf8(value.0).unwrap())).collect()
    }

    /// Returns the operator's record on the Secret.
    pub(crate) async fn record(&self, name: &str) -> Option<String> {
        let annotations = self.secrets().get(name).await.unwrap().metadata.annotations.unwrap_or_default();
        annotations.get("konverge.dev/zopp-record").cloned()
    }

    /// Waits until the Secret holds exactly this.
    pub(crate) async fn holds(&self, name: &str, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> =
            expected.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        until(&format!("{name} holds {expected:?}"), async || {
            let held = self.data(name).await;
            if held == expected { Ok(()) } else { Err(format!("{held:?}")) }
        })
        .await;
    }

    /// Waits for an event with this reason on the Secret, and returns its text.
    pub(crate) async fn told(&self, name: &str, reason: &str) -> String {
        until(&format!("{name} is told {reason}"), async || {
            let events = self.events(name).await;
            events.iter().find(|(of, _)| of == reason).map(|(_, note)| note.clone()).ok_or(format!("{events:?}"))
        })
        .await
    }

    /// Waits for an event with this reason on the Secret that names this.
    pub(crate) async fn told_of(&self, name: &str, reason: &str, named: &str) {
        until(&format!("{name} is told {reason} of {named}"), async || {
            let events = self.events(name).await;
            let is_told = events.iter().any(|(of, note)| of == reason && note.contains(named));
            if is_told { Ok(()) } else { Err(format!("{events:?}")) }
        })
        .await;
    }

    /// Reasons and texts of all events on the Secret.
    pub(crate) async fn events(&self, name: &str) -> Vec<(String, String)> {
        let events = self.all_events(name).await.into_iter();
        events.map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect()
    }

    /// Waits until the event with this reason on the Secret was renewed, and returns how often it was seen.
    pub(crate) async fn is_renewed(&self, name: &str, reason: &str) -> i32 {
        until(&format!("the event {reason} of {name} is renewed"), async || {
            let events = self.all_events(name).await;
            let found = events.iter().find(|event| event.reason.as_deref() == Some(reason));
            let series = found.and_then(|event| event.series.as_ref());
            series.map(|series| series.count).ok_or_else(|| format!("{found:?}"))
        })
        .await
    }

    pub(crate) async fn all_events(&self, name: &str) -> Vec<Event> {
        events_about(&self.kubernetes, &self.namespace, name).await.unwrap()
    }

    /// Waits until these operators have settled, and checks that nobody has written the Secret. The audit log tells also of a write that changes
    /// nothing.
    pub(crate) async fn stays(&self, name: &str, operators: &[&Operator]) {
        let rest = self.audit_log().await.from_now().unwrap();
        for operator in operators {
            operator.settled().await;
        }
        rest.catch_up(&self.kubernetes).await.unwrap();
        let asked = rest.entries().unwrap().into_iter();
        let writes: Vec<_> = asked.filter(|entry| entry.is_mutating() && self.is_about(entry, name)).collect();
        assert!(writes.is_empty(), "{name} was written: {writes:?}");
    }

    /// The audit log, with all in it that was answered so far.
    pub(crate) async fn audit_log(&self) -> AuditLog {
        let log = control_plane().await.audit_log().unwrap();
        log.catch_up(&self.kubernetes).await.unwrap();
        log
    }

    /// Whether a request was for this Secret.
    pub(crate) fn is_about(&self, entry: &AuditEntry, name: &str) -> bool {
        let object = &entry.object_ref;
        (object.resource.as_str(), object.namespace.as_str(), object.name.as_str())
            == ("secrets", &self.namespace, name)
    }
}

impl Operator {
    /// Waits until it has nothing left to do. After that, a test can say what it did not do.
    pub(crate) async fn settled(&self) {
        settled(QUIET, async || self.metrics.encode().unwrap()).await;
    }

    pub(crate) async fn stop(self) {
        drop(self.shutdown);
        self.running.await.unwrap();
    }

    /// Returns the current response of `/readyz?verbose`.
    pub(crate) fn ready(&self) -> String {
        self.checks.ready().text
    }

    /// The value of a counter now.
    pub(crate) fn count(&self, series: &str) -> u64 {
        let text = self.metrics.encode().unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        value.unwrap_or_default()
    }

    /// The sum of a metric over all its label sets that contain `label`.
    pub(crate) fn sum(&self, name: &str, label: &str) -> f64 {
        metric(&self.metrics.encode().unwrap(), name, label)
    }

    /// Waits until the metrics have this line.
    pub(crate) async fn counts(&self, line: &str) {
        until(line, async || {
            let text = self.metrics.encode().unwrap();
            let relevant =
                || text.lines().filter(|line| line.starts_with("konverge_pull")).collect::<Vec<_>>().join("\n");
            if text.lines().any(|found| found == line) { Ok(()) } else { Err(relevant()) }
        })
        .await;
    }
}

/// Waits until an environment was not asked for as long as no pause of an outage lasts.
pub(crate) async fn is_left_alone(scene: &Scene) {
    let mut last = (scene.asked(), Instant::now());
    holds("a pause that is longer than those of an outage", || {
        let asked = scene.asked();
        if asked != last.0 {
            last = (asked, Instant::now());
        }
        last.1.elapsed() > LONGEST_PAUSE + Duration::from_secs(1)
    })
    .await;
}

/// Waits for a condition.
pub(crate) async fn holds(what: &str, mut condition: impl FnMut() -> bool) {
    until_true(what, async || Ok(condition())).await;
}

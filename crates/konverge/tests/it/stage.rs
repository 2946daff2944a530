//! A control plane for all tests, a kind of custom resource, and programs that run until the test ends.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use clap::Parser;
use konverge::{CustomStatus, Operator, Options, apply::Conditions, prelude::*};
use konverge_testkit::{ControlPlane, eventually, http_get};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::ordering::deployment;

/// How long anything here may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A custom resource for tests: `behave` tells the reconciler what to do.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "test.konverge.dev", version = "v1", kind = "Probe", namespaced, status = "Status")]
pub(crate) struct ProbeSpec {
    /// `ok`, or a way to fail.
    pub behave: String,
}

/// Another custom resource for tests.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "test.konverge.dev", version = "v1", kind = "Echo", namespaced, status = "Status")]
pub(crate) struct EchoSpec {
    /// The reply.
    pub text: String,
}

/// One control plane for all tests of this binary; it ends with the process.
pub(crate) async fn control_plane() -> &'static ControlPlane {
    static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    CONTROL_PLANE.get_or_init(own_control_plane).await
}

/// One for a test that changes what concerns all namespaces.
pub(crate) async fn own_control_plane() -> ControlPlane {
    let plane = ControlPlane::start(konverge_testkit::Options::ours()).await.unwrap();
    let mut files = konverge::generate::Files::default();
    let crds = [<Probe as kube::CustomResourceExt>::crd(), <Echo as kube::CustomResourceExt>::crd()];
    files.objects("crds.yaml", &crds).unwrap();
    plane.apply(&files.manifest()).await.unwrap();
    plane
}

/// A namespace of a test, and who may do everything there.
pub(crate) struct Place {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Place {
    pub(crate) async fn new() -> Self {
        Self::on(control_plane().await).await
    }

    pub(crate) async fn on(plane: &ControlPlane) -> Self {
        let (client, namespace) = (plane.admin_client().await.unwrap(), plane.namespace("konverge").await.unwrap());
        Self { client, namespace }
    }

    pub(crate) fn api<K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create_probe(&self, name: &str, behave: &str) -> Probe {
        self.create_labelled(name, behave, &[]).await
    }

    pub(crate) async fn create_labelled(&self, name: &str, behave: &str, labels: &[(&str, &str)]) -> Probe {
        let mut probe = Probe::new(name, ProbeSpec { behave: behave.to_owned() });
        probe.labels_mut().extend(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        self.api::<Probe>().create(&PostParams::default(), &probe).await.unwrap()
    }

    pub(crate) async fn create_config_map(&self, name: &str, data: &[(&str, &str)]) -> ConfigMap {
        let mut config_map = ConfigMap::default();
        config_map.metadata.name = Some(name.to_owned());
        config_map.data = Some(data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect());
        self.api().create(&PostParams::default(), &config_map).await.unwrap()
    }

    pub(crate) async fn merge<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    pub(crate) async fn annotate(&self, name: &str, annotation: &str, value: Option<&str>) {
        self.merge::<Probe>(name, json!({"metadata": {"annotations": {annotation: value}}})).await;
    }

    /// Waits until a probe's conditions satisfy `expected`.
    pub(crate) async fn says(&self, name: &str, expected: impl Fn(&Conditions) -> bool) -> Probe {
        let api = self.api::<Probe>();
        let found = eventually(LIMIT, || async {
            let probe = api.get(name).await.unwrap();
            let said = probe.status.as_ref().is_some_and(|status| expected(&status.standard().conditions));
            said.then_some(probe)
        });
        if let Ok(probe) = found.await {
            return probe;
        }
        panic!("{name} says {:#?}", api.get(name).await.unwrap().status)
    }

    /// Runs a program over this namespace with more arguments, until the handle is dropped.
    pub(crate) async fn run(&self, operator: Operator, arguments: &[&str]) -> Running {
        let kubeconfig = control_plane().await.kubeconfig();
        run_as(kubeconfig, operator, &[&["--namespace", &self.namespace], arguments].concat()).await
    }
}

/// Runs a program with whatever rights the kubeconfig gives, until the handle is dropped. Waits until it is ready.
pub(crate) async fn run_as(kubeconfig: &Path, operator: Operator, arguments: &[&str]) -> Running {
    let running = start_as(kubeconfig, operator, arguments).await;
    running.is_ready().await;
    running
}

/// Runs a program without waiting.
pub(crate) async fn start_as(kubeconfig: &Path, operator: Operator, arguments: &[&str]) -> Running {
    let kubeconfig = kubeconfig.display().to_string();
    let common = ["test", "--address=127.0.0.1:0", "--kubeconfig", &kubeconfig];
    let options = Arguments::parse_from(common.iter().chain(arguments)).options;
    let manager = operator.assemble(options).await.unwrap();
    let (stop, checks, metrics) = (manager.shutdown(), manager.checks().clone(), manager.metrics().clone());
    let address = manager.address();
    let ended = tokio::spawn(async move { manager.run().await.map_err(|error| error.to_string()) });
    Running { stop, ended, checks, metrics, address }
}

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

/// A program that runs.
pub(crate) struct Running {
    stop: CancellationToken,
    ended: JoinHandle<Result<(), String>>,
    checks: konverge::runtime::checks::Checks,
    metrics: konverge::runtime::Metrics,
    pub(crate) address: SocketAddr,
}

impl Running {
    pub(crate) async fn is_ready(&self) {
        let ready = eventually(LIMIT, || std::future::ready(self.checks.ready().passed.then_some(())));
        assert!(ready.await.is_ok(), "{}", self.checks.ready().text);
    }

    /// Waits until it is not ready, and says this of the reason.
    pub(crate) async fn lacks(&self, reason: &str) {
        let lacks = eventually(LIMIT, || {
            let report = self.checks.ready();
            std::future::ready((!report.passed && report.text.contains(reason)).then_some(()))
        });
        assert!(lacks.await.is_ok(), "{}", self.checks.ready().text);
    }

    /// Status code and body of what it answers at a path.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        http_get(&self.address.to_string(), path).await.unwrap()
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(self) -> Result<(), String> {
        tokio::time::timeout(LIMIT, self.ended).await.unwrap().unwrap()
    }

    /// Tells it to stop and waits until it has.
    pub(crate) async fn end(self) -> Result<(), String> {
        self.stop.cancel();
        self.ended.await.unwrap()
    }

    /// The metrics as they are now.
    pub(crate) fn scraped(&self) -> String {
        self.metrics.encode().unwrap()
    }

    /// Waits until the metrics contain this line.
    pub(crate) async fn measures(&self, line: &str) {
        let found =
            eventually(LIMIT, || std::future::ready(self.metrics.encode().unwrap().contains(line).then_some(())));
        assert!(found.await.is_ok(), "{line} is not in\n{}", self.metrics.encode().unwrap());
    }
}

/// The calls of a reconciler, in order.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<Mutex<Vec<Run>>>);

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) reasons: Vec<&'static str>,
    pub(crate) at: tokio::time::Instant,
}

impl Runs {
    pub(crate) fn note<K: konverge::Object>(&self, context: &Context<K>) {
        self.0.lock().unwrap().push(Run {
            name: context.object().name_any(),
            attempt: context.attempt(),
            reasons: context.reasons().iter().copied().collect(),
            at: tokio::time::Instant::now(),
        });
    }

    pub(crate) fn of(&self, name: &str) -> Vec<Run> {
        self.0.lock().unwrap().iter().filter(|run| run.name == name).cloned().collect()
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for run in self.0.lock().unwrap().iter() {
            *counts.entry(run.name.clone()).or_default() += 1;
        }
        counts
    }

    /// Waits until an object had so many runs.
    pub(crate) async fn reach(&self, name: &str, count: usize) -> Vec<Run> {
        let reached = eventually(LIMIT, || {
            let runs = self.of(name);
            std::future::ready((runs.len() >= count).then_some(runs))
        });
        reached.await.unwrap_or_else(|_| panic!("{name} had {:?}", self.of(name)))
    }
}

/// Does what the probe says.
#[derive(Clone, Default)]
pub(crate) struct Prober {
    pub(crate) runs: Runs,
}

impl Reconcile<Probe> for Prober {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        self.runs.note(&context);
        match probe.spec.behave.as_str() {
            "transient" => Err(Error::transient("NoLuck", "no luck this time")),
            "permanent" => Err(Error::permanent("NeverWorks", "this never works")),
            "after" => Err(Error::after(Duration::from_millis(300), "Busy", "come back later")),
            "panic" => panic!("a bug"),
            "hang" => std::future::pending().await,
            "slow" => {
                tokio::time::sleep(Duration::from_secs(2)).await;
                context.ready(const { Reason::new("Slow") }, "took its time");
                Ok(Action::Done)
            }
            "progress" => {
                context.progressing(const { Reason::new("Waiting") }, "waits for others");
                Ok(Action::Done)
            }
            _ => Ok(Action::Done),
        }
    }
}

/// Has one Deployment, and calls itself ready as soon as that is written.
pub(crate) struct Publisher {
    pub(crate) deployment: &'static str,
    pub(crate) tolerates_unready: bool,
}

impl Reconcile<Probe> for Publisher {
    type Error = Error;

    async fn apply(&self, _: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        let children = context.children().with(deployment(self.deployment));
        let children = if self.tolerates_unready { children.tolerate_unready() } else { children };
        children.apply().await?;
        context.ready(const { Reason::new("Published") }, "all is written");
        Ok(Action::Done)
    }
}

/// Notes its runs and says the text.
#[derive(Clone, Default)]
pub(crate) struct Echoer {
    pub(crate) runs: Runs,
}

impl Reconcile<Echo> for Echoer {
    type Error = Error;

    async fn apply(&self, echo: Arc<Echo>, context: Context<Echo>) -> Result<Action, Error> {
        self.runs.note(&context);
        if echo.spec.text == "slow" {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        context.ready(const { Reason::new("Echoed") }, &echo.spec.text);
        Ok(Action::Done)
    }
}

pub(crate) fn operator(controller: impl konverge::Part + 'static) -> Operator {
    Operator::new("konverge-test", "0").controller(controller)
}

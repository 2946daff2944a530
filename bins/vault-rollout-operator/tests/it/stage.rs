//! One control plane for all tests of this binary, and the operator as a process.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use konverge_testkit::until_true as until;
use konverge_testkit::{
    ControlPlane, Options, Process, ProcessSpec, client_for, free_port, http_get, make_pods_ready, metric,
};
use kube::Api;
use tokio::sync::{OnceCell, watch};

use crate::{outside, view::View};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Far longer than anything here takes, on a machine that does other things, too.
pub(crate) const SOON: Duration = Duration::from_secs(90);

/// An object that is unchanged for this long does not oscillate.
pub(crate) const QUIET: Duration = Duration::from_secs(3);

/// The operator's service account, and what its objects of the whole cluster are called.
pub(crate) const ACCOUNT: &str = "vault-rollout-operator";

/// The shipped manifests.
const MANIFEST: &str = include_str!("../../../../deploy/rbac/vault-rollout-operator.yaml");
const DEFINITIONS: [&str; 2] = [
    include_str!("../../../../deploy/crds/vaultsyncstatus.yaml"),
    include_str!("../../../../deploy/crds/vaultrollouts.yaml"),
];

/// A control plane with controllers of workloads and pods that become ready, and the operator's account in its namespace.
pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    /// Where the operator lives, and its lease.
    pub(crate) home: String,
    kubeconfig: PathBuf,
}

impl Stage {
    /// That of this process. It ends with it.
    pub(crate) async fn shared() -> &'static Self {
        static STAGE: OnceCell<Stage> = OnceCell::const_new();
        STAGE.get_or_init(Self::set).await
    }

    /// One of a test's own.
    pub(crate) async fn set() -> Self {
        // Tests read its audit log, and forbid things.
        let plane =
            ControlPlane::start(Options::ours().with(|options| options.controller_manager = true)).await.unwrap();
        for definition in DEFINITIONS {
            plane.apply(definition).await.unwrap();
        }
        start_pods(plane.kubeconfig().to_owned());
        outside::start(plane.kubeconfig().to_owned());
        let home = plane.namespace("operator").await.unwrap();
        let kubeconfig = install(&plane, &home).await.unwrap();
        Self { plane, home, kubeconfig }
    }

    /// The kubeconfig of the operator's account.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A namespace, and a person in it.
    pub(crate) async fn view(&self, prefix: &str) -> View {
        let namespace = self.plane.namespace(prefix).await.unwrap();
        View::new(self.plane.admin_client().await.unwrap(), &namespace)
    }

    /// Starts an operator for one namespace and waits until it is ready.
    pub(crate) async fn start(&self, namespace: &str, arguments: &[&str]) -> Running {
        self.start_through(&self.kubeconfig, namespace, arguments).await
    }

    /// The same by another way to the API server.
    pub(crate) async fn start_through(&self, kubeconfig: &Path, namespace: &str, arguments: &[&str]) -> Running {
        let (spec, address) = operator(kubeconfig, namespace);
        self.start_as(spec.args(arguments.iter().copied()), address).await
    }

    /// The same as this process, which is to serve its health there.
    pub(crate) async fn start_as(&self, spec: ProcessSpec, address: String) -> Running {
        let process = Process::start(self.plane.run_directory(), spec).unwrap();
        let mut running = Running { process, address };
        running.ready().await;
        running
    }
}

/// Makes all pods ready until the process ends, on a thread of its own: a test that ends takes its tasks along, and all tests share the cluster.
fn start_pods(kubeconfig: PathBuf) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_pods_go, may_go) = watch::channel(true);
            make_pods_ready(Api::all(client_for(&kubeconfig).await.unwrap()), may_go).await;
        });
    });
}

/// Installs what is shipped for an operator of the namespace `home`, and gives the kubeconfig of its account.
pub(crate) async fn install(plane: &ControlPlane, home: &str) -> Result<PathBuf> {
    // Objects of the whole cluster are named after it, so that several do not take each other's away.
    let manifest = MANIFEST.replace("vault-rollout-operator-system", home);
    let manifest = ["ClusterRole\nmetadata:", "ClusterRoleBinding\nmetadata:", "kind: ClusterRole"].into_iter().fold(
        manifest,
        |manifest, before| {
            let (old, new) = (format!("{before}\n  name: {ACCOUNT}"), format!("{before}\n  name: {home}"));
            manifest.replace(&old, &new)
        },
    );
    Ok(plane.install(ACCOUNT, home, &manifest).await?.kubeconfig().to_owned())
}

/// Neither the debounce nor the budget of an operator without flags.
pub(crate) const UNLIMITED: [&str; 4] =
    ["--debounce=0s", "--max-concurrent-rollouts=0", "--max-rollouts-per-minute=0", "--concurrent-per-namespace=0"];

/// An operator for one namespace that lets no time pass between rollouts, and where it serves its health and metrics.
pub(crate) fn operator(kubeconfig: &Path, namespace: &str) -> (ProcessSpec, String) {
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let spec = ProcessSpec::new(ACCOUNT, env!("CARGO_BIN_EXE_vault-rollout-operator"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--namespace", namespace, "--min-interval", "0s", "--bind-address", &address])
        .args(UNLIMITED);
    (spec, address)
}

/// Waits until the operator that serves its health and metrics there is ready and has nothing left to do. After that, a test can say what it did not do.
pub(crate) async fn settled(address: &str) {
    until("the operator is ready", async || Ok(http_get(address, "/readyz").await.is_ok_and(|(code, _)| code == 200)))
        .await;
    let scrape = async || http_get(address, "/metrics").await.unwrap().1;
    konverge_testkit::settled(Duration::from_secs(1), scrape).await;
}

/// An operator that runs.
pub(crate) struct Running {
    pub(crate) process: Process,
    /// Where it serves its health and metrics.
    pub(crate) address: String,
}

impl Running {
    pub(crate) async fn ready(&mut self) {
        let is_ready = || async { http_get(&self.address, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
        self.process.ready("become ready", SOON, is_ready).await.unwrap();
    }

    /// The sum of a metric over all its label sets that contain `label`.
    pub(crate) async fn metric(&self, name: &str, label: &str) -> f64 {
        metric(&http_get(&self.address, "/metrics").await.unwrap().1, name, label)
    }

    /// Waits until it has nothing left to do.
    pub(crate) async fn settled(&self) {
        settled(&self.address).await;
    }

    /// Kills it, and starts it again with nothing in its memory.
    pub(crate) async fn crash(&mut self) {
        self.process.kill();
        self.process.start_again().unwrap();
        self.ready().await;
    }
}

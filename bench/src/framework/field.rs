//! Where the frameworks are compared: one control plane, the objects in it, and the peers on it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::ClusterRoleBinding};
use konverge_bench_protocol::{Job, Work};
use konverge_e2e::binary;
use konverge_testkit::{ControlPlane, Options};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::peer::Peer;

/// Requests under way at once while objects are made.
const AT_ONCE: usize = 16;

/// The frameworks that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framework {
    Konverge,
    KubeRuntime,
    Koprs,
}

impl Framework {
    pub(crate) const ALL: [Self; 3] = [Self::Konverge, Self::KubeRuntime, Self::Koprs];

    fn program(self) -> Result<PathBuf> {
        match self {
            Self::Konverge => binary("peer-konverge"),
            Self::KubeRuntime => binary("peer-kube"),
            Self::Koprs => koprs(),
        }
    }
}

pub(crate) struct Field {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    /// How many objects the large figures are about.
    pub(crate) objects: usize,
}

impl Field {
    pub(crate) async fn set(objects: usize, build_koprs: bool) -> Result<Self> {
        if build_koprs || !koprs()?.is_file() {
            tokio::task::spawn_blocking(self::build_koprs).await??;
        }
        let plane = ControlPlane::start(Options::default()).await?;
        let client = plane.admin_client().await?;
        Ok(Self { plane, client, objects })
    }

    /// Makes a namespace with `count` objects that carry `bytes` of payload each, in four keys. Their `managedFields` are what `kubectl` leaves.
    pub(crate) async fn config_maps(&self, prefix: &str, count: usize, bytes: usize) -> Result<String> {
        let namespace = self.plane.namespace(prefix).await?;
        eprintln!("creating {count} ConfigMaps of {bytes} bytes in {namespace}");
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &namespace);
        let parameters = PostParams { field_manager: Some("kubectl-create".to_owned()), ..PostParams::default() };
        let payload = "x".repeat(bytes / 4);
        let create = |number| {
            let (api, parameters, name) = (&api, &parameters, object_name(number));
            let data = ["one", "two", "three", "four"].map(|key| (key.to_owned(), payload.clone()));
            let mut object = ConfigMap { data: Some(data.into()), ..ConfigMap::default() };
            object.metadata.name = Some(name);
            object.metadata.labels = Some([("app.kubernetes.io/name".to_owned(), "bench".to_owned())].into());
            async move { api.create(parameters, &object).await.map(drop) }
        };
        stream::iter(0..count).map(create).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        Ok(namespace)
    }

    /// Starts a peer as an administrator. It is to say when `expected` runs have begun.
    pub(crate) fn peer(
        &self,
        framework: Framework,
        work: Work,
        namespace: &str,
        takes: Duration,
        expected: usize,
    ) -> Result<Peer> {
        self.peer_as(self.plane.kubeconfig(), framework, work, namespace, takes, expected)
    }

    /// Starts a peer with the credentials of another kubeconfig.
    pub(crate) fn peer_as(
        &self,
        kubeconfig: &Path,
        framework: Framework,
        work: Work,
        namespace: &str,
        takes: Duration,
        expected: usize,
    ) -> Result<Peer> {
        let job = Job {
            work,
            kubeconfig: kubeconfig.display().to_string(),
            namespace: namespace.to_owned(),
            takes,
            expected,
        };
        Peer::start(self.plane.run_directory(), &unique("peer"), framework.program()?, &job)
    }

    /// A service account that may do everything, whose requests can be told from others in the audit log: its name there, and its kubeconfig.
    pub(crate) async fn account(&self, namespace: &str, name: &str) -> Result<(String, PathBuf)> {
        let kubeconfig = self.plane.service_account_kubeconfig(namespace, name).await?;
        let binding_name = format!("bench-{namespace}-{name}");
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": binding_name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": name }],
        });
        let bindings = Api::<ClusterRoleBinding>::all(self.client.clone());
        bindings.patch(&binding_name, &PatchParams::apply("bench"), &Patch::Apply(&binding)).await?;
        Ok((format!("system:serviceaccount:{namespace}:{name}"), kubeconfig))
    }
}

/// A name for a process that no other has, since a log is named after it.
pub(crate) fn unique(name: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn object_name(number: usize) -> String {
    format!("object-{number}")
}

/// koprs needs an older kube, so its peer has a workspace and a folder of its own: `koprs`, beside that of our profile.
fn koprs() -> Result<PathBuf> {
    Ok(koprs_target()?.join("release/konverge-bench-koprs"))
}

fn koprs_target() -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find the running program")?;
    let target = this.ancestors().nth(2).context("the running program is in no target folder")?;
    Ok(target.join("koprs"))
}

fn build_koprs() -> Result<()> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("koprs/Cargo.toml");
    eprintln!("building the peer with koprs: {}", manifest.display());
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--manifest-path"]).arg(&manifest);
    let status = cargo.arg("--target-dir").arg(koprs_target()?).status().context("cannot start cargo")?;
    ensure!(status.success(), "cargo could not build {}; why is above", manifest.display());
    Ok(())
}

//! Deployments that are to be rolled for Secrets, an observer of them, and an operator that has not been started yet.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use konverge_e2e::binary;
use konverge_testkit::{ControlPlane, Process, ProcessSpec, eventually, free_port, http_get, metric};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::outside::Outside;

/// The operator's service account, and what its objects of the whole cluster are called.
const ACCOUNT: &str = "vault-rollout-operator";

/// The manifest of the release, with its own namespace.
const MANIFEST: &str = include_str!("../../../deploy/rbac/vault-rollout-operator.yaml");
const HOME: &str = "vault-rollout-operator-system";

/// Workloads that are worked on at the same time: the operator's default, also for the loop that is its limit.
pub(crate) const CONCURRENCY: usize = 16;

/// Nothing is held back: a loop does not wait either.
pub(crate) const AT_ONCE: [&str; 8] = [
    "--min-interval",
    "0s",
    "--rollout-timeout",
    "0s",
    "--debounce=0s",
    "--max-concurrent-rollouts=0",
    "--concurrent-per-namespace=0",
    "--max-rollouts-per-minute=0",
];

/// One of several leads.
pub(crate) const ELECTED: [&str; 1] = ["--leader-elect"];

/// Far beyond what anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_mins(5);

/// Longer than it takes until what is done already has been seen.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);

pub(crate) struct Field {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) outside: Outside,
    pub(crate) workloads: u16,
    secrets: u16,
    process: Process,
    address: String,
}

/// Gives the operator its account, and that what the shipped role lets it.
pub(crate) async fn install(control_plane: &ControlPlane) -> Result<PathBuf> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HOME } });
    let installed = control_plane.install(ACCOUNT, HOME, &format!("{namespace}\n---\n{MANIFEST}")).await?;
    Ok(installed.kubeconfig().to_owned())
}

/// The operator as the API server knows it.
pub(crate) fn account() -> String {
    format!("system:serviceaccount:{HOME}:{ACCOUNT}")
}

impl Field {
    /// Makes `workloads` Deployments that use `secrets` Secrets in turn. No operator has seen them.
    pub(crate) async fn set(
        control_plane: &ControlPlane,
        kubeconfig: &Path,
        workloads: u16,
        secrets: u16,
    ) -> Result<Self> {
        eprintln!("roll: setting the stage with {workloads} Deployments and {secrets} Secrets");
        let namespace = control_plane.namespace("roll").await?;
        let client = control_plane.admin_client().await?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut process = Process::start(control_plane.run_directory(), spec(kubeconfig, &namespace, &address)?)?;
        process.kill();
        let outside = Outside::start(client.clone(), &namespace);
        let field = Self { client, namespace, outside, workloads, secrets, process, address };
        let all = stream::iter(0..secrets).map(async |number| field.put(number, "initial").await);
        all.buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        let all = stream::iter(0..workloads).map(async |number| {
            field.deployment(&name(number), number % secrets, json!({ "roll.konverge.dev/on-change": "true" })).await
        });
        all.buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        Ok(field)
    }

    /// Gives a Secret its value.
    pub(crate) async fn put(&self, number: u16, value: &str) -> Result<()> {
        let name = format!("source-{number}");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { "VALUE": value },
        });
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let applied = api.patch(&name, &PatchParams::apply("bench"), &Patch::Apply(&secret)).await;
        applied.map(drop).with_context(|| format!("cannot apply secret {name}"))
    }

    /// Makes a Deployment that uses a Secret.
    pub(crate) async fn deployment(&self, name: &str, secret: u16, annotations: Value) -> Result<()> {
        let labels = json!({ "app": name });
        let used = json!([{ "secretRef": { "name": format!("source-{secret}") } }]);
        let container = json!({ "name": "main", "image": "example.com/app", "envFrom": used });
        let pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "annotations": annotations },
            "spec": { "selector": { "matchLabels": labels }, "template": pod },
        });
        self.apply(name, "bench", &deployment).await
    }

    /// Makes the smallest change that restarts a Deployment: one annotation of its pod template.
    pub(crate) async fn patch_bare(&self, name: &str, value: &str) -> Result<()> {
        let template = json!({ "metadata": { "annotations": { "bench.konverge.dev/content": value } } });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name }, "spec": { "template": template },
        });
        self.apply(name, "loop", &deployment).await
    }

    async fn apply(&self, name: &str, manager: &str, object: &Value) -> Result<()> {
        let api = Api::<Deployment>::namespaced(self.client.clone(), &self.namespace);
        // Only the metadata comes back, as to the operator.
        let applied = api.patch_metadata(name, &PatchParams::apply(manager).force(), &Patch::Apply(object)).await;
        applied.map(drop).with_context(|| format!("cannot apply deployment {name}"))
    }

    /// The operator runs from now on, and is ready when this returns.
    pub(crate) async fn start(&mut self, arguments: &[&str]) -> Result<()> {
        let given = &mut self.process.spec_mut().arguments;
        // Later arguments override earlier ones.
        given.extend(arguments.iter().map(Into::into));
        self.process.start_again()?;
        let address = &self.address;
        let is_ready = || async { http_get(address, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
        Ok(self.process.ready("become ready", LIMIT, is_ready).await?)
    }

    /// Another one beside it, which stands by; it is ready when this returns.
    pub(crate) async fn standby(&self, control_plane: &ControlPlane, kubeconfig: &Path) -> Result<Process> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut spec = spec(kubeconfig, &self.namespace, &address)?.args(AT_ONCE).args(ELECTED);
        spec.name.push_str("-standby");
        let mut standby = Process::start(control_plane.run_directory(), spec)?;
        let is_ready = || async { http_get(&address, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
        standby.ready("become ready", LIMIT, is_ready).await?;
        Ok(standby)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Waits until it is noted on all with what their pods run.
    pub(crate) async fn are_noted(&self) -> Result<()> {
        let all = usize::from(self.workloads);
        let noted = || std::future::ready((self.outside.noted() >= all).then_some(()));
        eventually(LIMIT, noted).await.context("not all Deployments are noted")
    }

    /// Waits until the operator has read every Secret, and as long again as it might take to do something about it.
    pub(crate) async fn has_looked(&self) -> Result<()> {
        let all = f64::from(self.secrets);
        let has_read = || async {
            let (_, scraped) = http_get(&self.address, "/metrics").await.ok()?;
            (metric(&scraped, "konverge_roll_checks_total", "") >= all).then_some(())
        };
        eventually(LIMIT, has_read).await.context("not all Secrets are read")?;
        sleep(SETTLE).await;
        Ok(())
    }
}

fn spec(kubeconfig: &Path, namespace: &str, address: &str) -> Result<ProcessSpec> {
    let spec = ProcessSpec::new(format!("{ACCOUNT}-{namespace}"), binary(ACCOUNT)?).arg("--kubeconfig").arg(kubeconfig);
    Ok(spec.args(["--namespace", namespace, "--bind-address", address]))
}

/// The name of a Deployment.
pub(crate) fn name(number: u16) -> String {
    format!("web-{number}")
}

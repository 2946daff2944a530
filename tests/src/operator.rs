//! The operator's process, under its own service account.

use std::{path::Path, process::ExitStatus, time::Duration};

use anyhow::{Context, Result};
use konverge_testkit::{Process, ProcessSpec, RunDirectory, eventually, free_port, http_get, metric};

use crate::binary;

/// How long it may take to answer on its health port.
const UP_WITHIN: Duration = Duration::from_mins(1);

/// An operator process.
pub struct Operator {
    process: Process,
    /// Of its health port.
    address: String,
    /// Where its metrics are.
    metrics: String,
    is_killed: bool,
}

impl Operator {
    /// Starts a zopp operator; it need not be able to reach anything. `arguments` are added to the necessary ones.
    pub fn start(
        run: &RunDirectory,
        name: &str,
        kubeconfig: &Path,
        server: &str,
        credentials: &Path,
        arguments: &[&str],
    ) -> Result<Self> {
        Self::start_in(&[], run, name, kubeconfig, server, credentials, arguments)
    }

    /// The same with these variables.
    pub fn start_in(
        environment: &[(&str, &str)],
        run: &RunDirectory,
        name: &str,
        kubeconfig: &Path,
        server: &str,
        credentials: &Path,
        arguments: &[&str],
    ) -> Result<Self> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let spec = ProcessSpec::new(name, binary("zopp-operator")?)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--server", server])
            .arg("--credentials")
            .arg(credentials)
            .args(["--health-addr", &address])
            .args(arguments.iter().copied());
        let spec = environment.iter().fold(spec, |spec, &(name, value)| spec.env(name, value));
        Ok(Self::running(Process::start(run, spec)?, address.clone(), address))
    }

    /// Starts a vault-sync-operator that has the token of this file in Vault; it need not be able to reach anything.
    pub fn start_push(
        run: &RunDirectory,
        kubeconfig: &Path,
        vault: &str,
        token: &Path,
        arguments: &[&str],
    ) -> Result<Self> {
        let [address, metrics] = [free_port()?, free_port()?].map(|port| format!("127.0.0.1:{port}"));
        let name = "vault-sync-operator";
        let spec = ProcessSpec::new(name, binary(name)?)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--vault-addr", vault, "--vault-auth-method", "token"])
            .arg("--vault-token-file")
            .arg(token)
            .args(["--health-probe-bind-address", &address, "--metrics-bind-address", &metrics])
            .arg("--enable-metrics-auth=false")
            .args(arguments.iter().copied());
        Ok(Self::running(Process::start(run, without_vault_of_user(spec))?, address, metrics))
    }

    /// Starts a vault-rollout-operator; it need not be able to reach anything.
    pub fn start_roll(run: &RunDirectory, kubeconfig: &Path, arguments: &[&str]) -> Result<Self> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let name = "vault-rollout-operator";
        let spec = ProcessSpec::new(name, binary(name)?)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--bind-address", &address])
            .args(arguments.iter().copied());
        Ok(Self::running(Process::start(run, without_vault_of_user(spec))?, address.clone(), address))
    }

    /// Starts an openzro-operator that has the token of this file; it need not be able to reach anything.
    pub fn start_manage(
        run: &RunDirectory,
        kubeconfig: &Path,
        server: &str,
        token: &Path,
        arguments: &[&str],
    ) -> Result<Self> {
        let [address, metrics] = [free_port()?, free_port()?].map(|port| format!("127.0.0.1:{port}"));
        let name = "openzro-operator";
        let spec = ProcessSpec::new(name, binary(name)?)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--openzro-management-url", server])
            .arg("--openzro-api-key-file")
            .arg(token)
            // The port of its webhooks is fixed, and the API server would not find them outside of the cluster.
            .args(["--enable-webhooks=false", "--runtime-namespace=openzro"])
            .args(["--health-probe-bind-address", &address, "--metrics-bind-address", &metrics])
            .args(arguments.iter().copied());
        Ok(Self::running(Process::start(run, spec)?, address, metrics))
    }

    fn running(process: Process, address: String, metrics: String) -> Self {
        Self { process, address, metrics, is_killed: false }
    }

    /// Kills it without a moment for a last word. Until [`start_again`](Self::start_again), that does not count as an end that is to be mended.
    pub fn kill(&mut self) {
        self.is_killed = true;
        self.process.kill();
    }

    /// Starts it again, and waits until it is ready.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process.start_again()?;
        self.is_killed = false;
        self.ready().await
    }

    /// How it has ended, if [`kill`](Self::kill) did not end it.
    pub fn ended(&mut self) -> Option<(String, ExitStatus)> {
        let status = self.process.status().filter(|_| !self.is_killed)?;
        Some((self.process.name().to_owned(), status))
    }

    /// Starts it again if it has ended, unless [`kill`](Self::kill) ended it.
    pub async fn start_ended(&mut self) -> Result<()> {
        if self.is_killed { Ok(()) } else { self.start_again().await }
    }

    /// Waits until `/readyz` answers 200.
    pub async fn ready(&mut self) -> Result<()> {
        let address = &self.address;
        let asks = || async { http_get(address, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
        Ok(self.process.ready("get ready", UP_WITHIN, asks).await?)
    }

    /// The address of its health port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where its metrics are.
    pub fn metrics_address(&self) -> &str {
        &self.metrics
    }

    /// Status code and body of a path on its health port.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        Ok(http_get(&self.address, path).await?)
    }

    /// The sum of a metric over all its label sets that contain `label`; zero if there is none yet.
    pub async fn metric(&self, name: &str, label: &str) -> Result<f64> {
        let (_, text) = http_get(&self.metrics, "/metrics").await?;
        Ok(metric(&text, name, label))
    }

    /// Waits until a metric is as it should be.
    pub async fn metric_becomes(&self, name: &str, label: &str, right: impl Fn(f64) -> bool) -> Result<f64> {
        let found =
            eventually(UP_WITHIN, || async { self.metric(name, label).await.ok().filter(|value| right(*value)) });
        found.await.with_context(|| format!("metric {name}{{{label}}}"))
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// The variables of the user are about another Vault.
fn without_vault_of_user(spec: ProcessSpec) -> ProcessSpec {
    let variables = std::env::vars_os().map(|(variable, _)| variable);
    let about_vault = variables.filter(|variable| variable.to_string_lossy().starts_with("VAULT_"));
    about_vault.fold(spec, ProcessSpec::env_remove)
}

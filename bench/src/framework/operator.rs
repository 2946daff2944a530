//! The example configmapsync as a process: our own program, with the CRD it generates.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use konverge_e2e::binary;
use konverge_testkit::{Process, ProcessSpec, free_port, http_get};

use super::field::{Field, unique};

const READY_WITHIN: Duration = Duration::from_mins(1);

pub(crate) struct Operator {
    pub(crate) process: Process,
    address: String,
}

impl Operator {
    /// Installs the CRD.
    pub(crate) async fn install(field: &Field, namespace: &str) -> Result<()> {
        let files = configmapsync_operator::operator().generate(namespace)?;
        Ok(field.plane.apply(&files.manifest()).await?)
    }

    /// Starts it, and waits until it is ready.
    pub(crate) async fn start(field: &Field, kubeconfig: &Path, arguments: &[&str]) -> Result<Self> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let spec = ProcessSpec::new(unique("configmapsync"), binary("configmapsync-operator")?)
            .args(["--address", &address])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(arguments.iter().copied())
            .env("RUST_LOG", "warn");
        let process = Process::start(field.plane.run_directory(), spec)?;
        let mut this = Self { process, address };
        let address = &this.address;
        let is_ready = || async { http_get(address, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
        this.process.ready("become ready", READY_WITHIN, is_ready).await?;
        Ok(this)
    }

    /// How many runs have ended.
    pub(crate) async fn runs(&self) -> Result<f64> {
        let (_, metrics) = http_get(&self.address, "/metrics").await.context("cannot read the metrics")?;
        let series = metrics.lines().filter(|line| line.starts_with("controller_runtime_reconcile_total{"));
        Ok(series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }
}

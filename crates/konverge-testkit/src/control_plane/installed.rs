//! An operator as a cluster has it: with the role from its manifest, as a process of its own.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{AuditEntry, AuditLog, ControlPlane, ManifestError};
use crate::{
    guard::RunDirectory,
    process::{Process, ProcessError, ProcessSpec, free_port},
};

/// How long an operator may take to be ready: a debug build on a busy machine.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// An operator that is installed in a cluster and can be started.
#[derive(Clone)]
pub struct InstalledOperator {
    account: String,
    kubeconfig: PathBuf,
    directory: RunDirectory,
}

impl ControlPlane {
    /// Applies the manifest of an operator, and gives it the service account `program` of `namespace`, as which it will run.
    pub async fn install(
        &self,
        program: &str,
        namespace: &str,
        manifest: &str,
    ) -> Result<InstalledOperator, ManifestError> {
        self.apply(manifest).await?;
        let kubeconfig = self.service_account_kubeconfig(namespace, program).await.map_err(Box::new)?;
        Ok(InstalledOperator {
            account: format!("system:serviceaccount:{namespace}:{program}"),
            kubeconfig,
            directory: self.run_directory().clone(),
        })
    }
}

impl InstalledOperator {
    /// The kubeconfig of its service account.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Starts it as a process called `name`, with `--kubeconfig`, `--address` and `arguments`, and waits until it is ready.
    pub async fn start(&self, name: &str, binary: &str, arguments: &[&str]) -> Result<Process, ProcessError> {
        self.start_through(&self.kubeconfig, name, binary, arguments).await
    }

    /// Like [`start`](Self::start), with another kubeconfig, such as that of a proxy.
    pub async fn start_through(
        &self,
        kubeconfig: &Path,
        name: &str,
        binary: &str,
        arguments: &[&str],
    ) -> Result<Process, ProcessError> {
        let address = format!("127.0.0.1:{}", free_port().unwrap_or_default());
        let spec = ProcessSpec::new(name, binary)
            .args(["--address", &address])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(arguments.iter().copied());
        let mut process = Process::start(&self.directory, spec)?;
        process.ready("become ready", READY_WITHIN, || async { is_ready(&address).await.unwrap_or(false) }).await?;
        Ok(process)
    }

    /// What it has asked of the API server since the place of the log.
    pub fn requests(&self, log: &AuditLog) -> io::Result<Vec<AuditEntry>> {
        log.entries_of(&self.account)
    }
}

async fn is_ready(address: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}

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

use super::{AuditEntry, AuditLog};
use crate::{
    fault_proxy::{FaultProxy, ProxyError},
    guard::RunDirectory,
    process::{Process, ProcessError, ProcessSpec, free_port},
};

/// How long an operator may take to be ready: a debug build on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// An operator that is installed in a cluster and can be started.
#[derive(Clone)]
pub struct InstalledOperator {
    account: String,
    kubeconfig: PathBuf,
    directory: RunDirectory,
    environment: Vec<(String, String)>,
}

/// An operator whose way to the API server goes through a fault proxy of its own. Dropping it ends both.
#[non_exhaustive]
pub struct ProxiedOperator {
    /// The fault proxy in front of it.
    pub proxy: FaultProxy,
    /// Its process.
    pub process: Process,
    /// The address of its health port, for [`http_get`].
    pub address: String,
}

/// An operator behind a proxy could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxiedError {
    /// Because of the proxy.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// Because of the operator.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl InstalledOperator {
    pub(super) fn new(namespace: &str, program: &str, kubeconfig: PathBuf, directory: RunDirectory) -> Self {
        Self {
            account: format!("system:serviceaccount:{namespace}:{program}"),
            kubeconfig,
            directory,
            environment: Vec::new(),
        }
    }

    /// The same with a variable more in its environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

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
        let (mut process, address) = self.begin_through(kubeconfig, name, binary, arguments)?;
        becomes_ready(&mut process, &address).await?;
        Ok(process)
    }

    /// Like [`start`](Self::start), behind a fault proxy of its own.
    pub async fn start_behind_proxy(
        &self,
        name: &str,
        binary: &str,
        arguments: &[&str],
    ) -> Result<ProxiedOperator, ProxiedError> {
        let proxy = FaultProxy::start(&self.directory, &self.kubeconfig).await?;
        let (mut process, address) = self.begin_through(proxy.kubeconfig(), name, binary, arguments)?;
        becomes_ready(&mut process, &address).await?;
        Ok(ProxiedOperator { proxy, process, address })
    }

    /// Like [`start`](Self::start), and does not wait: for a world in which it cannot be ready. Gives the address of its health port
    /// too, for [`http_get`].
    pub fn begin(&self, name: &str, binary: &str, arguments: &[&str]) -> Result<(Process, String), ProcessError> {
        self.begin_through(&self.kubeconfig, name, binary, arguments)
    }

    fn begin_through(
        &self,
        kubeconfig: &Path,
        name: &str,
        binary: &str,
        arguments: &[&str],
    ) -> Result<(Process, String), ProcessError> {
        let address = format!("127.0.0.1:{}", free_port().unwrap_or_default());
        let spec = ProcessSpec::new(name, binary)
            .args(["--address", &address])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(arguments.iter().copied());
        let spec = self.environment.iter().fold(spec, |spec, (name, value)| spec.env(name, value));
        Ok((Process::start(&self.directory, spec)?, address))
    }

    /// Returns the operator's requests to the API server since this mark of the audit log.
    pub fn requests(&self, log: &AuditLog) -> io::Result<Vec<AuditEntry>> {
        log.entries_of(&self.account)
    }
}

async fn becomes_ready(process: &mut Process, address: &str) -> Result<(), ProcessError> {
    let is_ready = || async { http_get(address, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
    process.ready("become ready", READY_WITHIN, is_ready).await
}

/// Asks a program on this machine, such as for `/readyz` or `/metrics`, and gives the status code and the body.
pub async fn http_get(address: &str, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let code = code.ok_or_else(|| io::Error::other(format!("no status line in {answer:?}")))?;
    Ok((code, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

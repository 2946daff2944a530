//! The servers of a control plane that is ours.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    StartError,
    audit::{self, AuditLog},
    client_for,
    credentials::{Credentials, FRONT_PROXY_CLIENT},
    services::Services,
};
use crate::{
    assets::{Assets, Binary},
    guard::RunDirectory,
    process::{Process, ProcessError, ProcessSpec, free_port},
};

/// On two busy cores a cold API server takes some ten seconds.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// Between the choice of a port and its use somebody else may take it; so often another one is tried.
const ATTEMPTS: usize = 3;

pub(super) struct Servers {
    // In the order in which they are to end.
    controller_manager: Option<Process>,
    api_server: Process,
    etcd: Process,
    etcd_port: u16,
    data: PathBuf,
    services: Services,
    kubeconfig: PathBuf,
    audit_log: PathBuf,
}

impl Servers {
    pub(super) async fn start(
        run: &RunDirectory,
        assets: &Assets,
        controller_manager: bool,
    ) -> Result<Self, StartError> {
        let credentials = Credentials::create(run.path())?;
        let audit_policy = run.path().join("audit-policy.json");
        fs::write(&audit_policy, audit::POLICY)?;
        let services = Services::listen(run.path())?;
        let data = run.path().join("etcd");
        let (etcd, etcd_port) = again_if_busy(async || start_etcd(run, assets, &data).await).await?;
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let kubeconfig = run.path().join("kubeconfig");
        let audit_log = run.path().join("audit.json");
        let api_server = again_if_busy(async || {
            let port = free_port()?;
            credentials.write_administrator(&kubeconfig, &format!("https://127.0.0.1:{port}"))?;
            let spec = api_server(run, assets, port, &etcd_url).arg(flag("audit-log-path", &audit_log));
            let mut process = Process::start(run, spec)?;
            ready(&mut process, &kubeconfig).await?;
            Ok(process)
        })
        .await?;
        let controller_manager =
            if controller_manager { Some(start_controller_manager(run, assets, &kubeconfig).await?) } else { None };
        Ok(Self { controller_manager, api_server, etcd, etcd_port, data, services, kubeconfig, audit_log })
    }

    pub(super) fn audit_log(&self) -> AuditLog {
        AuditLog::new(self.audit_log.clone())
    }

    pub(super) fn route_service(&self, service: &str, to: SocketAddr) {
        self.services.route(service, to);
    }

    pub(super) fn kill_api_server(&mut self) {
        self.api_server.kill();
    }

    pub(super) async fn start_api_server(&mut self) -> Result<(), StartError> {
        self.api_server.start_again()?;
        ready(&mut self.api_server, &self.kubeconfig).await
    }

    /// Copies the data of etcd, which is stopped meanwhile.
    pub(super) async fn copy_data(&mut self, to: &Path) -> Result<(), StartError> {
        self.etcd.kill();
        copy_folder(&self.data, to)?;
        self.start_etcd_again().await?;
        ready(&mut self.api_server, &self.kubeconfig).await
    }

    /// Replaces the data of etcd, and starts the other servers again, which would go on with what they remember.
    pub(super) async fn replace_data(&mut self, copy: &Path) -> Result<(), StartError> {
        self.controller_manager.as_mut().map(Process::kill);
        self.api_server.kill();
        self.etcd.kill();
        fs::remove_dir_all(&self.data)?;
        copy_folder(copy, &self.data)?;
        self.start_etcd_again().await?;
        self.start_api_server().await?;
        match &mut self.controller_manager {
            Some(controller_manager) => Ok(controller_manager.start_again()?),
            None => Ok(()),
        }
    }

    async fn start_etcd_again(&mut self) -> Result<(), StartError> {
        let port = self.etcd_port;
        self.etcd.start_again()?;
        Ok(self.etcd.ready("get healthy", READY_WITHIN, || is_healthy(port)).await?)
    }

    pub(super) fn ended(&mut self) -> Vec<(String, ExitStatus)> {
        self.processes().filter_map(|process| Some((process.name().to_owned(), process.status()?))).collect()
    }

    pub(super) async fn start_ended(&mut self) -> Result<(), StartError> {
        for process in self.processes() {
            if process.status().is_some() {
                process.start_again()?;
            }
        }
        if self.api_server.pid().is_none() {
            return Ok(());
        }
        ready(&mut self.api_server, &self.kubeconfig).await
    }

    /// All of them, those first that others need.
    fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        [&mut self.etcd, &mut self.api_server].into_iter().chain(&mut self.controller_manager)
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Repeats a start that found its port taken.
async fn again_if_busy<T>(start: impl AsyncFn() -> Result<T, StartError>) -> Result<T, StartError> {
    for _ in 1..ATTEMPTS {
        match start().await {
            Err(StartError::Process(ProcessError::Ended { log, .. }))
                if fs::read_to_string(&log).unwrap_or_default().contains("address already in use") => {}
            outcome => return outcome,
        }
    }
    start().await
}

async fn start_etcd(run: &RunDirectory, assets: &Assets, data: &Path) -> Result<(Process, u16), StartError> {
    let (client, peer) = (free_port()?, free_port()?);
    let url = format!("http://127.0.0.1:{client}");
    let peer = format!("http://127.0.0.1:{peer}");
    let spec = ProcessSpec::new("etcd", assets.path(Binary::Etcd)).arg(flag("data-dir", data)).args([
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // The data is gone with the run, so it need not survive a power cut.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]);
    let mut process = Process::start(run, spec)?;
    process.ready("get healthy", READY_WITHIN, || is_healthy(client)).await?;
    Ok((process, client))
}

/// Whether etcd answers `GET /health` with 200.
async fn is_healthy(port: u16) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    ask.await.is_ok_and(|answer| answer.contains(" 200 ") && answer.contains("true"))
}

fn api_server(run: &RunDirectory, assets: &Assets, port: u16, etcd_url: &str) -> ProcessSpec {
    let file = |name: &str| run.path().join(name);
    ProcessSpec::new("kube-apiserver", assets.path(Binary::ApiServer))
        .args([
            flag("admission-control-config-file", &file("admission.json")),
            flag("audit-policy-file", &file("audit-policy.json")),
            flag("cert-dir", run.path()),
            flag("client-ca-file", &file("ca.crt")),
            flag("egress-selector-config-file", &Services::configuration(run.path())),
            flag("proxy-client-cert-file", &file("front-proxy-client.crt")),
            flag("proxy-client-key-file", &file("front-proxy-client.key")),
            flag("requestheader-client-ca-file", &file("front-proxy-ca.crt")),
            flag("service-account-key-file", &file("service-accounts.pub")),
            flag("service-account-signing-key-file", &file("service-accounts.key")),
            flag("tls-cert-file", &file("server.crt")),
            flag("tls-private-key-file", &file("server.key")),
        ])
        .args([
            "--authorization-mode=RBAC".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            // It would wait for every namespace's default service account, which nobody makes here.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            // As on OpenShift: a client that sets an owner reference needs permission to delete the child and, for
            // `blockOwnerDeletion`, to update the owner's finalizers.
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned(),
            format!("--etcd-servers={etcd_url}"),
            // As kubeadm sets them: the authority of the front proxy is in the ConfigMap kube-system/extension-apiserver-authentication.
            format!("--requestheader-allowed-names={FRONT_PROXY_CLIENT}"),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            format!("--secure-port={port}"),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ])
}

fn controller_manager_spec(run: &RunDirectory, assets: &Assets, kubeconfig: &Path) -> ProcessSpec {
    ProcessSpec::new("kube-controller-manager", assets.path(Binary::ControllerManager))
        .args([
            flag("kubeconfig", kubeconfig),
            flag("root-ca-file", &run.path().join("ca.crt")),
            flag("service-account-private-key-file", &run.path().join("service-accounts.key")),
        ])
        .args(["--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false"])
        // By default it makes 20 requests in a second, for which tests with a hundred workloads would wait most of the time.
        .args(["--kube-api-qps=1000", "--kube-api-burst=1000"])
}

/// Starts the controller manager and waits until it acts. Its own health answers before its controllers run, so what they make is
/// waited for: in a new cluster nobody else makes a service account.
async fn start_controller_manager(
    run: &RunDirectory,
    assets: &Assets,
    kubeconfig: &Path,
) -> Result<Process, StartError> {
    let mut process = Process::start(run, controller_manager_spec(run, assets, kubeconfig))?;
    let accounts = Api::<ServiceAccount>::namespaced(client_for(kubeconfig).await?, "default");
    let acts = || async { accounts.get_opt("default").await.is_ok_and(|account| account.is_some()) };
    process.ready("make the default service account", READY_WITHIN, acts).await?;
    Ok(process)
}

/// Waits until the API server says that it is ready.
async fn ready(process: &mut Process, kubeconfig: &Path) -> Result<(), StartError> {
    let client = client_for(kubeconfig).await?;
    let asks = || {
        let client = client.clone();
        async move {
            let request = http::Request::get("/readyz").body(Vec::new());
            match request {
                Ok(request) => client.request_text(request).await.is_ok_and(|answer| answer == "ok"),
                Err(_) => false,
            }
        }
    };
    Ok(process.ready("get ready", READY_WITHIN, asks).await?)
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Starts a program that says something and ends; counts how often.
    async fn attempts(script: &str) -> (usize, Result<(), StartError>) {
        let run = RunDirectory::new().unwrap();
        let count = Cell::new(0);
        let outcome = again_if_busy(async || {
            count.set(count.get() + 1);
            let spec = ProcessSpec::new("server", "sh").args(["-c", script]);
            let mut process = Process::start(&run, spec.arg("sh").arg(count.get().to_string()))?;
            let log = process.log();
            let up = || async { fs::read_to_string(&log).unwrap_or_default().contains("up") };
            process.ready("come up", READY_WITHIN, up).await?;
            Ok(())
        });
        let outcome = outcome.await;
        (count.get(), outcome)
    }

    #[tokio::test]
    async fn a_start_that_finds_its_port_taken_is_repeated() {
        let (count, outcome) =
            attempts(r#"[ "$1" = 1 ] && { echo bind: address already in use; exit 1; }; echo up; sleep 60"#).await;
        assert!(outcome.is_ok());
        assert_eq!(count, 2);
        let (count, outcome) = attempts("echo bind: address already in use; exit 1").await;
        assert!(outcome.is_err());
        assert_eq!(count, ATTEMPTS);
    }

    #[tokio::test]
    async fn a_start_that_fails_otherwise_is_not_repeated() {
        let (count, outcome) = attempts("echo no space left on device; exit 1").await;
        assert!(outcome.unwrap_err().to_string().contains("no space left"));
        assert_eq!(count, 1);
    }
}

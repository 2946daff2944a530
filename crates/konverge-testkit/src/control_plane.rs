//! A Kubernetes control plane: one that is started for the test, or one that the user names.

mod audit;
pub(crate) mod credentials;
mod installed;
mod manifest;
mod options;
mod role_use;
mod servers;
mod services;
mod traces;

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{Namespace, Service, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde_json::json;

pub use self::audit::{AuditEntry, AuditLog, AuditObject, AuditStatus, AuditUser};
use self::servers::Servers;
pub use self::{
    installed::{InstalledOperator, ProxiedError, ProxiedOperator, http_get},
    manifest::ManifestError,
    options::{Cluster, Options},
    role_use::RoleUse,
    traces::{RUN_LABEL, create_for_run, run_name, take_away, take_away_run},
};
use crate::{
    assets::{Assets, AssetsError, Binary},
    environment::KUBECONFIG_VARIABLE,
    guard::RunDirectory,
    process::ProcessError,
};

/// How long the token of a service account's kubeconfig is good for: longer than any test.
const TOKEN_SECONDS: i64 = 4 * 60 * 60;

/// No control plane could be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its programs are missing.
    #[error(transparent)]
    Assets(#[from] AssetsError),
    /// One of its servers did not come up.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file could not be written.
    #[error(
        "cannot prepare the control plane's files: {source}; they are in {folder}: is there space, and may you write there? TMPDIR names \
         another place",
        folder = std::env::temp_dir().display()
    )]
    File {
        /// The error of the operating system.
        #[from]
        source: io::Error,
    },
    /// A certificate could not be made.
    #[error("cannot make the control plane's certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The kubeconfig is not usable.
    #[error("cannot use kubeconfig {}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<KubeconfigError>,
    },
    /// The API server refused something that every test needs.
    #[error("the cluster refused to {what}: {source}")]
    Api {
        /// The request.
        what: &'static str,
        /// The response.
        source: Box<kube::Error>,
    },
}

/// The cluster was named by the user, so its servers are not ours to stop or to look into.
#[derive(Debug, thiserror::Error)]
#[error(
    "{what} needs a control plane that the test kit started, and this cluster was named by {KUBECONFIG_VARIABLE} or by the test; \
     ask for one with `Options::ours()`"
)]
pub struct NotOurs {
    what: &'static str,
}

/// A Service leads nowhere.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The control plane is not ours.
    #[error(transparent)]
    NotOurs(#[from] NotOurs),
    /// The Service cannot be read.
    #[error("cannot read service {service}")]
    Read {
        /// Which one.
        service: String,
        /// The response of the API server.
        source: Box<kube::Error>,
    },
    /// There is no client.
    #[error(transparent)]
    Client(#[from] StartError),
    /// It has no address in the cluster that anybody could ask for.
    #[error("service {service} has no address in the cluster")]
    NoAddress {
        /// Which one.
        service: String,
    },
}

/// A control plane. Dropping it ends what was started.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use konverge_testkit::{ControlPlane, Options};
///
/// let control_plane = ControlPlane::start(Options::default()).await?;
/// let namespace = control_plane.namespace("shop").await?;
/// let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
///     kube::Api::namespaced(control_plane.admin_client().await?, &namespace);
/// assert!(secrets.list(&Default::default()).await?.items.is_empty());
/// # Ok(())
/// # }
/// ```
pub struct ControlPlane {
    run: RunDirectory,
    kubeconfig: PathBuf,
    servers: Option<Servers>,
    kubectl: Option<PathBuf>,
}

/// A copy of what a control plane stores. It lies in the folder of the run.
#[derive(Debug, Clone)]
pub struct Snapshot(PathBuf);

impl ControlPlane {
    /// Starts etcd and kube-apiserver, or reaches the cluster that is named, and waits until it answers.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let run = RunDirectory::new()?;
        if let Some(kubeconfig) = options.cluster.kubeconfig() {
            let this = Self { run, kubeconfig, servers: None, kubectl: None };
            let version = this.admin_client().await?.apiserver_version().await;
            version.map_err(|source| StartError::Api { what: "tell its version", source: Box::new(source) })?;
            return Ok(this);
        }
        let mut needed = vec![Binary::Etcd, Binary::ApiServer];
        needed.extend(options.controller_manager.then_some(Binary::ControllerManager));
        needed.extend(options.kubectl.then_some(Binary::Kubectl));
        // The build blocks for minutes, once per machine.
        let assets = tokio::task::spawn_blocking(move || Assets::find(&needed)).await.map_err(io::Error::other)??;
        let kubectl = Some(assets.path(Binary::Kubectl)).filter(|path| path.is_file());
        let servers = Servers::start(&run, &assets, options.controller_manager).await?;
        let kubeconfig = run.path().join("kubeconfig");
        Ok(Self { kubeconfig, servers: Some(servers), kubectl, run })
    }

    /// Kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Whether it was started for the test and ends with it, and not named by the user.
    pub fn is_ours(&self) -> bool {
        self.servers.is_some()
    }

    /// The folder of this run; what is started in it ends with it. Logs are in `<name>.log`.
    pub fn run_directory(&self) -> &RunDirectory {
        &self.run
    }

    /// kubectl of the cluster's version, if it came with the control plane. With [`Options::kubectl`] it does.
    pub fn kubectl(&self) -> Option<&Path> {
        self.kubectl.as_deref()
    }

    /// A new client of an administrator, with its own connections.
    pub async fn admin_client(&self) -> Result<Client, StartError> {
        client_for(&self.kubeconfig).await
    }

    /// Makes a namespace whose name begins with `prefix` and that no other test uses. In a cluster that outlives the test it is
    /// taken away by [`take_away`] or [`take_away_run`].
    pub async fn namespace(&self, prefix: &str) -> Result<String, StartError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // The folder's name ends with letters that are this control plane's own; numbers of processes come again.
        let folder = self.run.path().file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let own = folder.rsplit('-').next().unwrap_or_default();
        let name = format!("{prefix}-{own}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let api = Api::<Namespace>::all(self.admin_client().await?);
        let created = create_for_run(api, Namespace { metadata, ..Namespace::default() }).await;
        created.map_err(|source| StartError::Api { what: "make a namespace", source: Box::new(source) })?;
        Ok(name)
    }

    /// Kubeconfig of a service account, which is made if it is not there. It may do what RBAC grants it and no more, and its namespace
    /// is the default one, as in a pod.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf, StartError> {
        let failed = |what| move |source| StartError::Api { what, source: Box::new(source) };
        let client = self.admin_client().await?;
        let accounts = Api::<ServiceAccount>::namespaced(client, namespace);
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
        let parameters = PatchParams::apply("konverge-testkit");
        accounts.patch(name, &parameters, &Patch::Apply(&account)).await.map_err(failed("make a service account"))?;
        // As JSON, because the types of Kubernetes' versions differ in which fields are optional.
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {},
            "spec": { "audiences": [], "expirationSeconds": TOKEN_SECONDS },
        });
        let request: TokenRequest = serde_json::from_value(request).map_err(io::Error::from)?;
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let answer = answer.map_err(failed("make a service account's token"))?;
        let answer = serde_json::to_value(&answer).map_err(io::Error::from)?;
        let token = &answer["status"]["token"];
        let administrator = Kubeconfig::read_from(&self.kubeconfig).map_err(|source| self.unusable(source))?;
        let path = self.run.path().join(format!("kubeconfig-{namespace}-{name}"));
        let mut copy = administrator;
        for user in &mut copy.auth_infos {
            user.auth_info = Some(serde_json::from_value(json!({ "token": token })).map_err(io::Error::from)?);
        }
        for context in copy.contexts.iter_mut().filter_map(|context| context.context.as_mut()) {
            context.namespace = Some(namespace.to_owned());
        }
        std::fs::write(&path, serde_json::to_vec_pretty(&copy).map_err(io::Error::from)?)?;
        Ok(path)
    }

    /// Applies the manifest of an operator, and gives it the service account `program` of `namespace`, as which it will run.
    pub async fn install(
        &self,
        program: &str,
        namespace: &str,
        manifest: &str,
    ) -> Result<InstalledOperator, ManifestError> {
        self.apply(manifest).await?;
        let kubeconfig = self.service_account_kubeconfig(namespace, program).await.map_err(Box::new)?;
        Ok(InstalledOperator::new(namespace, program, kubeconfig, self.run.clone()))
    }

    /// Leads the API server to a program on this machine when it calls this Service, as it does for webhooks: whatever the port. There are
    /// no pods and no nodes here that could answer.
    pub async fn route_service(&self, namespace: &str, name: &str, to: SocketAddr) -> Result<(), RouteError> {
        let servers = self.servers.as_ref().ok_or(NotOurs { what: "leading the API server to a Service" })?;
        let service = || format!("{namespace}/{name}");
        let found = Api::<Service>::namespaced(self.admin_client().await?, namespace).get(name).await;
        let found = found.map_err(|source| RouteError::Read { service: service(), source: Box::new(source) })?;
        let address = found.spec.and_then(|spec| spec.cluster_ip).filter(|address| address != "None");
        servers.route_service(&address.ok_or_else(|| RouteError::NoAddress { service: service() })?, to);
        Ok(())
    }

    /// The audit log.
    pub fn audit_log(&self) -> Result<AuditLog, NotOurs> {
        self.servers.as_ref().map(Servers::audit_log).ok_or(NotOurs { what: "reading the audit log" })
    }

    /// Kills the API server. Its data stays.
    pub fn kill_api_server(&mut self) -> Result<(), NotOurs> {
        self.servers_mut("killing the API server").map(Servers::kill_api_server)
    }

    /// Starts the API server again, on the same port, and waits until it is ready.
    pub async fn start_api_server(&mut self) -> Result<Result<(), StartError>, NotOurs> {
        let servers = self.servers_mut("starting the API server")?;
        Ok(servers.start_api_server().await)
    }

    /// Copies what etcd stores, for [`ControlPlane::restore`]. etcd is stopped for a moment, so watches of the API server may break off.
    pub async fn snapshot(&mut self) -> Result<Result<Snapshot, StartError>, NotOurs> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = format!("etcd-snapshot-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let snapshot = Snapshot(self.run.path().join(folder));
        let servers = self.servers_mut("copying what etcd stores")?;
        Ok(servers.copy_data(&snapshot.0).await.map(|()| snapshot))
    }

    /// Replaces what etcd stores by an earlier copy, as after a disaster, and starts the other servers again, on the same ports. Resource
    /// versions go on from those of the copy, so they are given out a second time.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # use konverge_testkit::{ControlPlane, Options};
    /// let mut control_plane = ControlPlane::start(Options::ours()).await?;
    /// let snapshot = control_plane.snapshot().await??;
    /// // Change objects while an operator runs.
    /// control_plane.restore(&snapshot).await??;
    /// // The changes are undone. What does the operator make of it?
    /// # Ok(())
    /// # }
    /// ```
    pub async fn restore(&mut self, snapshot: &Snapshot) -> Result<Result<(), StartError>, NotOurs> {
        let servers = self.servers_mut("replacing what etcd stores")?;
        Ok(servers.replace_data(&snapshot.0).await)
    }

    /// Which of its servers have ended without being asked to, and how. None of a cluster that was named.
    pub fn ended(&mut self) -> Vec<(String, ExitStatus)> {
        self.servers.as_mut().map(Servers::ended).unwrap_or_default()
    }

    /// Starts those servers again, on the same ports and data, and waits until the API server is ready. An API server that
    /// [`ControlPlane::kill_api_server`] killed is not started again.
    pub async fn start_ended(&mut self) -> Result<(), StartError> {
        if self.ended().is_empty() {
            return Ok(());
        }
        match &mut self.servers {
            Some(servers) => servers.start_ended().await,
            None => Ok(()),
        }
    }

    fn servers_mut(&mut self, what: &'static str) -> Result<&mut Servers, NotOurs> {
        self.servers.as_mut().ok_or(NotOurs { what })
    }

    fn unusable(&self, source: KubeconfigError) -> StartError {
        StartError::Kubeconfig { path: self.kubeconfig.clone(), source: Box::new(source) }
    }
}

/// A client with the current context of a kubeconfig.
pub async fn client_for(kubeconfig: &Path) -> Result<Client, StartError> {
    let unusable = |source| StartError::Kubeconfig { path: kubeconfig.to_owned(), source: Box::new(source) };
    let content = Kubeconfig::read_from(kubeconfig).map_err(unusable)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(content, &KubeConfigOptions::default()).await.map_err(unusable)?;
    // A test would rather fail than wait for a server that does not answer.
    config.connect_timeout = Some(Duration::from_secs(5));
    Client::try_from(config)
        .map_err(|source| StartError::Api { what: "be a client's server", source: Box::new(source) })
}

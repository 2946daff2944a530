//! Everything together.

use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use konverge_testkit::{ControlPlane, Options};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};

use crate::{Operator, Server, User, Watcher, annotated_secret, rbac};

/// A control plane, a server, a user who owns workspace `acme` with project `backend`, and a service principal for operators.
/// The processes that it started end with it. In a named cluster it makes everything under names of its own and changes nothing that is there;
/// [`konverge_testkit::take_away`] takes it away.
pub struct Stage {
    // In the order in which they are to end.
    /// The server.
    pub server: Server,
    /// The user.
    pub user: User,
    /// The control plane.
    pub control_plane: ControlPlane,
    client: Client,
    credentials: PathBuf,
    principal: String,
    kubeconfig: PathBuf,
    operator_user: String,
}

impl Stage {
    /// Sets the stage, in the cluster that is named or on a control plane of its own.
    pub async fn set() -> Result<Self> {
        Self::set_on(Options::default()).await
    }

    /// Sets the stage on a control plane of its own even when a cluster is named: for tests that stop the API server, or read the audit log.
    pub async fn set_on_ours() -> Result<Self> {
        Self::set_on(Options::ours()).await
    }

    async fn set_on(options: Options) -> Result<Self> {
        let control_plane = ControlPlane::start(options).await?;
        let run = control_plane.run_directory().clone();
        let server = Server::start(&run).await?;
        let user = User::new(run.path().join("home"), server.url())?;
        user.zopp(["join", &server.invite().await?, "alice@example.com", "--principal", "laptop"]).await?;
        user.zopp(["workspace", "create", "acme"]).await?;
        user.zopp(["project", "create", "backend", "-w", "acme"]).await?;
        let credentials = run.path().join("operator.json");
        let principal = user.create_service("acme", "operator", &credentials).await?;
        let client = control_plane.admin_client().await?;
        let namespace = control_plane.namespace("konverge-system").await?;
        rbac::create(&client, &rbac::PULL, &namespace).await?;
        let kubeconfig = control_plane.service_account_kubeconfig(&namespace, rbac::PULL.account).await?;
        let operator_user = format!("system:serviceaccount:{namespace}:{}", rbac::PULL.account);
        Ok(Self { server, user, control_plane, client, credentials, principal, kubeconfig, operator_user })
    }

    /// An administrator's client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The name by which the API server knows the operators.
    pub fn operator_user(&self) -> &str {
        &self.operator_user
    }

    /// The file with the operators' credentials.
    pub fn credentials(&self) -> &std::path::Path {
        &self.credentials
    }

    /// Kubeconfig of the operators' service account.
    pub fn operator_kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// Id of the operators' principal.
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// Makes `acme/backend/<name>`, lets the operators read it, and returns that path.
    pub async fn environment(&self, name: &str) -> Result<String> {
        let path = format!("acme/backend/{name}");
        self.user.create_environment(&path).await?;
        self.user.grant(&path, &self.principal, "read").await?;
        Ok(path)
    }

    /// Starts an operator named `name` for one namespace, and waits until it is ready.
    pub async fn operator(&self, name: &str, namespace: &str) -> Result<Operator> {
        let mut operator = self.operator_with(name, &["--namespace", namespace])?;
        operator.ready().await?;
        Ok(operator)
    }

    /// Starts an operator with arguments of its own; does not wait.
    pub fn operator_with(&self, name: &str, arguments: &[&str]) -> Result<Operator> {
        let run = self.control_plane.run_directory();
        Operator::start(run, name, &self.kubeconfig, &self.server.url(), &self.credentials, arguments)
    }

    /// Applies an annotated Secret without data.
    pub async fn bind(&self, namespace: &str, name: &str, environment: &str) -> Result<Secret> {
        bind(&self.client, namespace, name, environment).await
    }

    /// Watches the Secrets of a namespace from outside.
    pub fn watcher(&self, namespace: &str) -> Watcher {
        Watcher::start(self.client.clone(), namespace)
    }
}

/// Applies an annotated Secret without data.
pub async fn bind(client: &Client, namespace: &str, name: &str, environment: &str) -> Result<Secret> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let manifest = annotated_secret(name, environment);
    let applied = api.patch(name, &PatchParams::apply("user"), &Patch::Apply(&manifest)).await;
    applied.with_context(|| format!("cannot apply secret {namespace}/{name}"))
}

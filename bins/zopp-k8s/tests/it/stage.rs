//! A control plane, a zopp server, and Alice with an environment.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Output},
};

use k8s_openapi::api::core::v1::Secret;
use konverge_testkit::{ControlPlane, Options};
use konverge_zopp_server::{
    admin,
    args::InviteCommand,
    serve::{Options as ServerOptions, Server},
    store::Location,
};
use kube::{Api, Client};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A control plane, a zopp server, and Alice, who owns `acme/backend/dev`.
pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) namespace: String,
    url: String,
    home: TempDir,
    stop: CancellationToken,
    serving: Option<JoinHandle<()>>,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let plane = ControlPlane::start(Options::default()).await.unwrap();
        let namespace = plane.namespace("shop").await.unwrap();
        let home = tempfile::tempdir().unwrap();
        let database = Location::file(home.path().join("zopp.db"));
        let server = Server::bind(ServerOptions::local(database)).await.unwrap();
        let (url, store, stop) =
            (format!("http://{}", server.address()), server.store().clone(), CancellationToken::new());
        let token = stop.clone();
        let serving = Some(tokio::spawn(async move { server.run(token).await.unwrap() }));
        let stage = Self { plane, namespace, url, home, stop, serving };
        let mut invite = Vec::new();
        let command = InviteCommand::Create { expires_hours: 1, uses: None, plain: true };
        admin::run(&store, &command, &mut invite).await.unwrap();
        let invite = String::from_utf8(invite).unwrap();
        stage.ok(&format!("join {} alice@example.com --principal laptop", invite.trim())).await;
        stage.ok("workspace create acme").await;
        stage.ok("project create backend -w acme").await;
        stage.ok("environment create dev -w acme -p backend").await;
        stage
    }

    /// `zopp-k8s` with a line of arguments, about Alice's environment.
    pub(crate) async fn run(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zopp-k8s"));
        command
            .args(line.split_whitespace())
            .env_clear()
            .env("HOME", self.home.path())
            .env("ZOPP_SERVER", &self.url)
            .env("ZOPP_WORKSPACE", "acme")
            .env("ZOPP_PROJECT", "backend")
            .env("ZOPP_ENVIRONMENT", "dev")
            .current_dir(self.home.path());
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    pub(crate) async fn ok(&self, line: &str) -> String {
        let Output { status, stdout, stderr } = self.run(line).await;
        assert!(status.success(), "zopp {line}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    /// A verb for the Secret `backend`, by a kubeconfig that is named.
    pub(crate) fn line(&self, verb: &str) -> String {
        let kubeconfig: PathBuf = self.plane.kubeconfig().to_owned();
        format!("{verb} --namespace {} --secret backend --kubeconfig {}", self.namespace, kubeconfig.display())
    }

    pub(crate) async fn client(&self) -> Client {
        self.plane.admin_client().await.unwrap()
    }

    pub(crate) async fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client().await, &self.namespace)
    }

    pub(crate) async fn secret(&self) -> Secret {
        self.secrets().await.get("backend").await.unwrap()
    }

    /// Ends in order; the control plane ends with it.
    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        if let Some(serving) = self.serving.take() {
            serving.await.unwrap();
        }
    }
}

/// The values as text.
pub(crate) fn values(secret: &Secret) -> BTreeMap<String, String> {
    let data = secret.data.clone().unwrap_or_default();
    data.into_iter().map(|(key, value)| (key, String::from_utf8(value.0).unwrap())).collect()
}

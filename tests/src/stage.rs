//! Everything together.

use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use konverge_testkit::{ControlPlane, Options};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::json;

use crate::{Operator, Server, User, Watcher};

/// The manifest that users apply; the stage's operators run under it and nothing more.
const MANIFEST: &str = include_str!("../../deploy/rbac/zopp-operator.yaml");

/// Namespace and name of the service account in the manifest.
const SERVICE_ACCOUNT: (&str, &str) = ("konverge-system", "zopp-operator");

/// A control plane, a server, a user who owns workspace `acme` with project `backend`, and a service principal for operators.
/// What it started ends with it.
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
}

impl Stage {
    /// Sets the stage.
    pub async fn set() -> Result<Self> {
        let control_plane = ControlPlane::start(Options::default()).await?;
        let run = control_plane.run_directory().clone();
        let server = Server::start(&run).await?;
        let user = User::new(run.path().join("home"), server.url())?;
        user.zopp(["join", &server.invite().await?, "alice@example.com", "--principal", "laptop"]).await?;
        user.zopp(["workspace", "create", "acme"]).await?;
        user.zopp(["project", "create", "backend", "-w", "acme"]).await?;
        let credentials = run.path().join("operator.json");
        let principal = user.create_service("acme", "operator", &credentials).await?;
        let client = control_plane.admin_client().await?;
        apply_manifest(&client).await?;
        let (namespace, name) = SERVICE_ACCOUNT;
        let kubeconfig = control_plane.service_account_kubeconfig(namespace, name).await?;
        Ok(Self { server, user, control_plane, client, credentials, principal, kubeconfig })
    }

    /// An administrator's client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The name by which the API server knows the operators.
    pub fn operator_user(&self) -> String {
        let (namespace, name) = SERVICE_ACCOUNT;
        format!("system:serviceaccount:{namespace}:{name}")
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
        let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let manifest = annotated_secret(name, environment);
        let applied = api.patch(name, &PatchParams::apply("user"), &Patch::Apply(&manifest)).await;
        applied.with_context(|| format!("cannot apply secret {namespace}/{name}"))
    }

    /// Deletes what the stage made in a cluster that outlives it, and the namespaces that its user made. Where the control plane is
    /// ours there is nothing to do: it ends with the stage.
    pub async fn take_down(self, namespaces: &[String]) -> Result<()> {
        if self.control_plane.is_ours() {
            return Ok(());
        }
        for document in documents()? {
            let (api, name) = document.api(&self.client)?;
            match api.delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                outcome => drop(outcome.with_context(|| format!("cannot delete {name}"))?),
            }
        }
        for namespace in namespaces.iter().map(String::as_str).chain([SERVICE_ACCOUNT.0]) {
            self.control_plane.delete_namespace(namespace).await?;
        }
        Ok(())
    }

    /// Watches the Secrets of a namespace from outside.
    pub fn watcher(&self, namespace: &str) -> Watcher {
        Watcher::start(self.client.clone(), namespace)
    }
}

/// The manifest of a Secret that is bound to `<workspace>/<project>/<environment>`.
pub fn annotated_secret(name: &str, environment: &str) -> serde_json::Value {
    let mut parts = environment.split('/');
    let mut next = || parts.next().unwrap_or_default();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "annotations": {
            "zopp.dev/sync": "true",
            "zopp.dev/workspace": next(),
            "zopp.dev/project": next(),
            "zopp.dev/environment": next(),
        } },
    })
}

/// Applies every document of the operator's manifest, and the namespace they are in.
async fn apply_manifest(client: &Client) -> Result<()> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SERVICE_ACCOUNT.0 } });
    let namespace = Document(serde_json::from_value(namespace)?);
    for document in std::iter::once(namespace).chain(documents()?) {
        let (api, name) = document.api(client)?;
        let parameters = PatchParams::apply("konverge-e2e").force();
        let applied = api.patch(&name, &parameters, &Patch::Apply(&document.0)).await;
        applied.with_context(|| format!("cannot apply {name}"))?;
    }
    Ok(())
}

/// The documents of the operator's manifest.
fn documents() -> Result<Vec<Document>> {
    let parse = |text| serde_saphyr::from_str(text).context("cannot read the operator's manifest").map(Document);
    MANIFEST.split("\n---\n").map(parse).collect()
}

/// One object of a manifest, of whatever kind.
struct Document(DynamicObject);

impl Document {
    /// Where it belongs, and its name there.
    fn api(&self, client: &Client) -> Result<(Api<DynamicObject>, String)> {
        let types = self.0.types.clone().context("a document without a kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let name = self.0.metadata.name.clone().context("a document without a name")?;
        let api = match &self.0.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        Ok((api, name))
    }
}

//! A control plane, a Vault, an operator in this process, and a person with kubectl.

use std::{collections::BTreeMap, path::PathBuf, process::Stdio, time::Duration};

use clap::Parser;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use konverge_core::SecretValue;
use konverge_push::{config::Config, run::assemble};
use konverge_testkit::{ControlPlane, Options, eventually, http_get};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use konverge_vault::{Content, Credential, Field, Found, Location, Login, SecretPath, Vault, VaultConfig};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{process::Command, sync::OnceCell, task::JoinHandle};

/// Far longer than anything here takes.
pub(crate) const SOON: Duration = Duration::from_mins(1);

const ACCOUNT: &str = "vault-sync-operator-controller-manager";
const ROLE: &str = include_str!("../../../../deploy/rbac/vault-sync-operator.yaml");
/// The kind that the role names, too.
const DEFINITION: &str = include_str!("../../../../deploy/crds/vaultpushes.yaml");
const DEPLOYMENT: &str = include_str!("../../../../deploy/vault-sync-operator.yaml");

/// The values that no output may contain, in the clear and in base64.
pub(crate) const VALUES: [&str; 4] =
    ["hunter-one-3141", "aHVudGVyLW9uZS0zMTQx", "hunter-two-2718", "aHVudGVyLXR3by0yNzE4"];

/// A control plane and a Vault.
pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) server: VaultServer,
    /// The operator's own namespace.
    pub(crate) home: String,
    operator: PathBuf,
}

impl Stage {
    /// That of this process, with the Deployment of an operator that is ready.
    pub(crate) async fn shared() -> &'static Self {
        static STAGE: OnceCell<Stage> = OnceCell::const_new();
        STAGE
            .get_or_init(|| async {
                let stage = Self::set().await;
                stage.deploy(2).await;
                stage
            })
            .await
    }

    /// A control plane of the test's own.
    pub(crate) async fn set() -> Self {
        let plane = ControlPlane::start(Options::ours()).await.unwrap();
        let server = VaultServer::start(VaultOptions::default()).await.unwrap();
        server.mount_kv("secret", 2).await.unwrap();
        let home = plane.namespace("operator").await.unwrap();
        let manifest = ROLE.replace("vault-sync-operator-system", &home);
        plane.apply(DEFINITION).await.unwrap();
        let operator = plane.install(ACCOUNT, &home, &manifest).await.unwrap().kubeconfig().to_owned();
        Self { plane, server, home, operator }
    }

    /// The shipped manifest, with this number of ready replicas. There is no kubelet that would start any.
    pub(crate) async fn deploy(&self, ready: i32) {
        self.plane.apply(&DEPLOYMENT.replace("vault-sync-operator-system", &self.home)).await.unwrap();
        let status = json!({ "status": { "replicas": 2, "readyReplicas": ready } });
        let api = Api::<Deployment>::namespaced(self.plane.admin_client().await.unwrap(), &self.home);
        api.patch_status(ACCOUNT, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    /// Gives the operator of the shipped manifest these arguments, and two ready replicas.
    pub(crate) async fn deploy_with(&self, arguments: &[&str]) {
        self.deploy(2).await;
        let api = Api::<Deployment>::namespaced(self.plane.admin_client().await.unwrap(), &self.home);
        let patch = json!([{ "op": "replace", "path": "/spec/template/spec/containers/0/args", "value": arguments }]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
        api.patch(ACCOUNT, &PatchParams::default(), &patch).await.unwrap();
    }

    /// A namespace of its own, and a person with it.
    pub(crate) async fn world(&self) -> World<'_> {
        let namespace = self.plane.namespace("shop").await.unwrap();
        let token = Credential::value(SecretValue::from(self.server.root_token().to_owned()));
        let vault = Vault::new(&VaultConfig::new(self.server.address(), Login::Token(token)).unwrap());
        let client = self.plane.admin_client().await.unwrap();
        World { stage: self, namespace, client, vault, home: tempfile::tempdir().unwrap() }
    }
}

/// A person with a namespace and all of Vault.
pub(crate) struct World<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) namespace: String,
    /// This test's own: a client works in the runtime that it was made in.
    pub(crate) client: Client,
    pub(crate) vault: Vault,
    /// Where the person's files are.
    pub(crate) home: tempfile::TempDir,
}

/// The result of the plugin.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// It has to have ended like this.
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        self
    }

    /// It has to have said all of this.
    #[track_caller]
    pub(crate) fn says(&self, all: &[&str]) {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = words(&format!("{}\n{}", self.out, self.err));
        for text in all {
            assert!(said.contains(text), "it does not say {text:?}:\n{}{}", self.out, self.err);
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

impl World<'_> {
    /// The plugin with an administrator's access to both.
    pub(crate) fn plugin(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-konverge"));
        command
            .env_clear()
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.stage.plane.kubeconfig())
            .env("VAULT_ADDR", self.stage.server.address())
            .env("VAULT_TOKEN", self.stage.server.root_token())
            .stdin(Stdio::null());
        command
    }

    /// `kubectl konverge <line>` in the person's namespace.
    pub(crate) async fn run(&self, line: &str) -> Ran {
        self.run_in(&self.namespace, line).await
    }

    /// Runs the plugin in another namespace.
    pub(crate) async fn run_in(&self, namespace: &str, line: &str) -> Ran {
        let mut command = self.plugin();
        command.args(["-n", namespace]).args(line.split(' '));
        ran(&mut command).await
    }

    /// An operator for the namespace, until it is dropped.
    pub(crate) async fn operator(&self, arguments: &[&str]) -> Operator {
        let kubeconfig = self.stage.operator.to_str().unwrap();
        let common = ["vault-sync-operator", "--kubeconfig", kubeconfig, "--namespace", &self.namespace];
        let ports = ["--health-probe-bind-address", "127.0.0.1:0", "--metrics-bind-address", "0"];
        let rules = ["--allow-path", "*=secret/data/{namespace}/*"];
        let line = common.iter().chain(&ports).chain(&rules).chain(arguments);
        let config = Config::try_parse_from(line).unwrap();
        let manager = assemble(config, self.vault.clone()).await.unwrap();
        let address = manager.address().to_string();
        let running = tokio::spawn(async move { manager.run().await.unwrap() });
        let ready = async || http_get(&address, "/readyz").await.is_ok_and(|(code, _)| code == 200).then_some(());
        eventually(SOON, ready).await.unwrap();
        Operator(running)
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        format!("secret/data/{}/{rest}", self.namespace)
    }

    /// Applies a Secret with these annotations.
    pub(crate) async fn secret(&self, name: &str, data: &[(&str, &str)], annotations: Value) {
        let data: BTreeMap<_, _> = data.iter().copied().collect();
        let metadata = json!({ "name": name, "annotations": annotations });
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data });
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&secret)).await.unwrap();
    }

    /// Applies a `VaultPush` of one Secret.
    pub(crate) async fn vault_push(&self, name: &str, secret: &str, path: &str, update: &str) {
        let spec = json!({ "secrets": { "names": [secret] }, "mount": "secret", "path": path.strip_prefix("secret/data/").unwrap(), "updatePolicy": update });
        let metadata = json!({ "name": name, "namespace": self.namespace });
        let object =
            json!({ "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultPush", "metadata": metadata, "spec": spec });
        self.stage.plane.apply(&object.to_string()).await.unwrap();
    }

    /// Applies a Deployment that uses a Secret.
    pub(crate) async fn deployment(&self, name: &str, secret: &str, path: &str) {
        let labels = json!({ "app": name });
        let container =
            json!({ "name": "main", "image": "example.com/app", "envFrom": [{ "secretRef": { "name": secret } }] });
        let pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let metadata = json!({ "name": name, "annotations": { "vault-sync.io/path": path } });
        let spec = json!({ "selector": { "matchLabels": labels }, "template": pod });
        let object = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec });
        let api = Api::<Deployment>::namespaced(self.client.clone(), &self.namespace);
        api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
    }

    /// Waits until `status` of the object shows the state.
    pub(crate) async fn until(&self, object: &str, state: &str) {
        let found = eventually(SOON, async || {
            let ran = self.run(&format!("status {object} -o json")).await;
            let shown = serde_json::from_str::<Value>(&ran.out).ok()?;
            (shown["objects"][0]["state"] == state).then_some(())
        });
        let found = found.await;
        assert!(found.is_ok(), "{object} is not {state}: {:?}", self.run(&format!("why {object}")).await);
    }

    async fn locate(&self, path: &str) -> Location {
        self.vault.locate(&SecretPath::parse(path).unwrap()).await.unwrap()
    }

    /// Returns the content of a path.
    pub(crate) async fn held(&self, path: &str) -> BTreeMap<String, String> {
        let text = |field: &Field| String::from_utf8_lossy(field.bytes()).into_owned();
        match self.vault.read(&self.locate(path).await).await.unwrap() {
            Found::Live(secret) => secret.content.iter().map(|(key, field)| (key.to_owned(), text(field))).collect(),
            Found::Absent | Found::Deleted(_) => BTreeMap::new(),
        }
    }

    /// Somebody writes to a path.
    pub(crate) async fn write(&self, path: &str, data: &[(&str, &str)]) {
        let location = self.locate(path).await;
        let found = self.vault.read(&location).await.unwrap();
        let mut content = Content::new();
        for (key, value) in data {
            content.insert(*key, SecretValue::from((*value).to_owned()));
        }
        self.vault.write(&location, &content, found.expected()).await.unwrap();
    }
}

/// An operator that runs until it is dropped.
pub(crate) struct Operator(JoinHandle<()>);

impl Drop for Operator {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) async fn ran(command: &mut Command) -> Ran {
    let output = command.output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ran = Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) };
    for value in VALUES {
        assert!(!ran.out.contains(value) && !ran.err.contains(value), "{value} is shown: {ran:?}");
    }
    ran
}

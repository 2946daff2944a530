//! One control plane and one Vault for all tests of this binary, and the operator as a process.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::Secret,
};
use konverge_core::SecretValue;
use konverge_push::{plugin::record_of, vault_push::VaultPush};
pub(crate) use konverge_testkit::until_true as until;
use konverge_testkit::{ControlPlane, Options, Process, ProcessSpec, free_port, http_get};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use konverge_vault::{Content, Credential, Expected, Field, Found, Location, Login, SecretPath, Vault, VaultConfig};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The operator's service account: that of the original.
pub(crate) const ACCOUNT: &str = "vault-sync-operator-controller-manager";

/// Far longer than anything here takes.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// The shipped manifests.
pub(crate) const MANIFEST: &str = include_str!("../../../../deploy/rbac/vault-sync-operator.yaml");

/// The definition of the custom resource that is shipped.
const DEFINITION: &str = include_str!("../../../../deploy/crds/vaultpushes.yaml");

/// A control plane and a Vault, and the operator's account in its namespace.
pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) server: VaultServer,
    /// The operator's own namespace.
    pub(crate) home: String,
    kubeconfig: PathBuf,
}

impl Stage {
    /// That of this process. It ends with it.
    pub(crate) async fn shared() -> &'static Self {
        static STAGE: OnceCell<Stage> = OnceCell::const_new();
        STAGE.get_or_init(Self::set).await
    }

    /// A control plane of the test's own, which may be damaged.
    pub(crate) async fn set() -> Self {
        let plane = ControlPlane::start(Options::ours()).await.unwrap();
        plane.apply(DEFINITION).await.unwrap();
        let server = VaultServer::start(VaultOptions::default()).await.unwrap();
        server.mount_kv("secret", 2).await.unwrap();
        server.mount_kv("old", 1).await.unwrap();
        let home = plane.namespace("operator").await.unwrap();
        let manifest = MANIFEST.replace("vault-sync-operator-system", &home);
        let kubeconfig = plane.install(ACCOUNT, &home, &manifest).await.unwrap().kubeconfig().to_owned();
        Self { plane, server, home, kubeconfig }
    }

    /// Another installation, in a namespace of its own, with what is shipped changed before. Gives the namespace and the kubeconfig.
    pub(crate) async fn another(&self, change: impl FnOnce(String) -> String) -> (String, PathBuf) {
        let home = self.plane.namespace("another").await.unwrap();
        let mut manifest = MANIFEST.replace("vault-sync-operator-system", &home);
        for role in ["manager-role", "auth-role"] {
            // These belong to no namespace.
            manifest = manifest.replace(&format!("vault-sync-operator-{role}"), &format!("{home}-{role}"));
        }
        let installed = self.plane.install(ACCOUNT, &home, &change(manifest)).await.unwrap();
        let kubeconfig = installed.kubeconfig().to_owned();
        (home, kubeconfig)
    }

    /// The kubeconfig of the operator's account.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// An operator for one namespace. Gives also where it serves its health and metrics.
    pub(crate) fn operator(&self, kubeconfig: &Path, namespace: &str, vault: &str) -> (ProcessSpec, String, String) {
        let address = || format!("127.0.0.1:{}", free_port().unwrap());
        let (health, metrics) = (address(), address());
        let spec = ProcessSpec::new("vault-sync-operator", env!("CARGO_BIN_EXE_vault-sync-operator"))
            .arg("-kubeconfig")
            .arg(kubeconfig)
            .args(["-vault-addr", vault, "-vault-auth-method=token", "-namespace", namespace])
            // Most tests check which content is deleted, not when.
            .args(["-deletion-grace=0s", "-allow-deletes"])
            .args(["-health-probe-bind-address", &health, "-metrics-bind-address", &metrics])
            // The tests write everywhere in Vault, which a start with a token may not do by itself.
            .env("VAULT_SYNC_ALLOW_PATH", "*=*")
            .env("VAULT_TOKEN", self.server.root_token());
        (spec, health, metrics)
    }

    /// The operator's account as the API server knows it.
    pub(crate) fn account(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.home)
    }

    /// Starts an operator for one namespace and waits until it is ready.
    pub(crate) async fn start(&self, namespace: &str, change: impl FnOnce(ProcessSpec) -> ProcessSpec) -> Running {
        self.start_at(namespace, self.server.address(), change).await
    }

    /// The same with another way to Vault.
    pub(crate) async fn start_at(
        &self,
        namespace: &str,
        vault: &str,
        change: impl FnOnce(ProcessSpec) -> ProcessSpec,
    ) -> Running {
        let (spec, health, metrics) = self.operator(&self.kubeconfig, namespace, vault);
        let mut process = Process::start(self.plane.run_directory(), change(spec)).unwrap();
        let is_ready = || async { http_get(&health, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
        process.ready("become ready", SOON, is_ready).await.unwrap();
        Running { process, health, metrics }
    }

    /// The observable state of a namespace and of Vault.
    pub(crate) async fn view(&self, namespace: &str) -> View {
        let client = self.plane.admin_client().await.unwrap();
        View::new(&self.server, client, namespace)
    }
}

/// An operator that runs.
pub(crate) struct Running {
    pub(crate) process: Process,
    /// Where it serves its health.
    pub(crate) health: String,
    /// Where it serves its metrics.
    pub(crate) metrics: String,
}

impl Running {
    /// Waits until it has nothing left to do. It has to show its metrics to anybody.
    pub(crate) async fn settled(&self) {
        let scrape = async || http_get(&self.metrics, "/metrics").await.unwrap().1;
        konverge_testkit::settled(Duration::from_secs(1), scrape).await;
    }
}

/// A person with a namespace and all of Vault.
pub(crate) struct View {
    pub(crate) namespace: String,
    pub(crate) client: Client,
    pub(crate) vault: Vault,
}

impl View {
    pub(crate) fn new(server: &VaultServer, client: Client, namespace: &str) -> Self {
        let token = Credential::value(SecretValue::from(server.root_token().to_owned()));
        let vault = Vault::new(&VaultConfig::new(server.address(), Login::Token(token)).unwrap());
        Self { namespace: namespace.to_owned(), client, vault }
    }

    /// The same path as a `VaultPush` has it, beside the mount `secret`.
    pub(crate) fn path_in_engine(&self, rest: &str) -> String {
        format!("{}/{rest}", self.namespace)
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        format!("secret/data/{}/{rest}", self.namespace)
    }

    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = match kind {
            "Secret" => ApiResource::erase::<Secret>(&()),
            "Deployment" => ApiResource::erase::<Deployment>(&()),
            "StatefulSet" => ApiResource::erase::<StatefulSet>(&()),
            "DaemonSet" => ApiResource::erase::<DaemonSet>(&()),
            "CronJob" => ApiResource::erase::<CronJob>(&()),
            "Job" => ApiResource::erase::<Job>(&()),
            "Rollout" => ApiResource::from_gvk(&GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Rollout")),
            "VaultPush" => ApiResource::erase::<VaultPush>(&()),
            other => panic!("no kind {other}"),
        };
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Applies a Secret.
    pub(crate) async fn secret(&self, name: &str, data: &[(&str, &str)], path: Option<&str>) -> Result<()> {
        let data: BTreeMap<_, _> = data.iter().copied().collect();
        let annotations = path.map(|path| json!({ "vault-sync.io/path": path })).unwrap_or_default();
        let metadata = json!({ "name": name, "annotations": annotations });
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data });
        let parameters = PatchParams::apply("user").force();
        self.api("Secret").patch(name, &parameters, &Patch::Apply(&secret)).await?;
        Ok(())
    }

    /// Applies a Deployment that uses a Secret.
    pub(crate) async fn deployment(&self, name: &str, secret: &str, path: &str) -> Result<()> {
        self.workload("Deployment", name, secret, path).await
    }

    /// Applies a workload that uses a Secret.
    pub(crate) async fn workload(&self, kind: &str, name: &str, secret: &str, path: &str) -> Result<()> {
        let labels = json!({ "app": name });
        let container =
            json!({ "name": "main", "image": "example.com/app", "envFrom": [{ "secretRef": { "name": secret } }] });
        let mut pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let (version, spec) = match kind {
            "Job" => {
                pod["spec"]["restartPolicy"] = "Never".into();
                ("batch/v1", json!({ "suspend": true, "template": pod }))
            }
            "CronJob" => {
                pod["spec"]["restartPolicy"] = "Never".into();
                let template = json!({ "spec": { "template": pod } });
                ("batch/v1", json!({ "schedule": "@yearly", "suspend": true, "jobTemplate": template }))
            }
            "Rollout" => ("argoproj.io/v1alpha1", json!({ "selector": { "matchLabels": labels }, "template": pod })),
            _ => ("apps/v1", json!({ "selector": { "matchLabels": labels }, "template": pod })),
        };
        let metadata = json!({ "name": name, "annotations": { "vault-sync.io/path": path } });
        let object = json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec });
        let parameters = PatchParams::apply("user").force();
        self.api(kind).patch(name, &parameters, &Patch::Apply(&object)).await?;
        Ok(())
    }

    /// Applies a `VaultPush` of one Secret.
    pub(crate) async fn vault_push(&self, name: &str, secret: &str, path: &str) -> Result<()> {
        let spec = json!({ "secrets": { "names": [secret] }, "mount": "secret", "path": path.strip_prefix("secret/data/").unwrap(), "updatePolicy": "Merge" });
        let object = json!({
            "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultPush", "metadata": { "name": name }, "spec": spec,
        });
        let parameters = PatchParams::apply("user").force();
        self.api("VaultPush").patch(name, &parameters, &Patch::Apply(&object)).await?;
        Ok(())
    }

    /// Sets annotations, or removes those that are `null`.
    pub(crate) async fn annotate(&self, kind: &str, name: &str, annotations: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        self.api(kind).patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        // A Job would wait for a collector of garbage to let its pods go, and there is none here.
        self.api(kind).delete(name, &DeleteParams::background()).await?;
        Ok(())
    }

    /// Whether the object's status says that it is in sync at exactly these paths.
    pub(crate) async fn is_synced(&self, kind: &str, name: &str, paths: &[&str]) -> Result<bool> {
        let Some(record) = self.record(kind, name).await? else { return Ok(false) };
        let Some(recorded) = record["paths"].as_object() else { return Ok(false) };
        let is_written = recorded.values().all(|written| written["written"] == true);
        Ok(record["state"] == "Synced" && is_written && recorded.keys().eq(paths))
    }

    /// The record on an object.
    pub(crate) async fn record(&self, kind: &str, name: &str) -> Result<Option<Value>> {
        if kind == "VaultPush" {
            let object = self.api(kind).get_opt(name).await?;
            return Ok(object.as_ref().and_then(record_of).map(serde_json::to_value).transpose()?);
        }
        let annotations = self.api(kind).get_metadata_opt(name).await?.and_then(|object| object.metadata.annotations);
        let status = annotations.and_then(|annotations| annotations.get("vault-sync.io/status").cloned());
        Ok(status.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Whether there is no such object.
    pub(crate) async fn is_gone(&self, kind: &str, name: &str) -> Result<bool> {
        Ok(self.api(kind).get_metadata_opt(name).await?.is_none())
    }

    async fn locate(&self, path: &str) -> Result<Location> {
        Ok(self.vault.locate(&SecretPath::parse(path)?).await?)
    }

    /// Returns the content of a path, or `None` if there is none or it is deleted.
    pub(crate) async fn read(&self, path: &str) -> Result<Option<BTreeMap<String, String>>> {
        let text = |field: &Field| String::from_utf8_lossy(field.bytes()).into_owned();
        Ok(match self.vault.read(&self.locate(path).await?).await? {
            Found::Live(secret) => {
                Some(secret.content.iter().map(|(key, field)| (key.to_owned(), text(field))).collect())
            }
            Found::Absent | Found::Deleted(_) => None,
        })
    }

    /// Writes a path, as a person does.
    pub(crate) async fn write(&self, path: &str, key: &str, value: &str) -> Result<()> {
        let mut content = Content::new();
        content.insert(key, SecretValue::from(value.to_owned()));
        self.vault.write(&self.locate(path).await?, &content, Expected::Any).await?;
        Ok(())
    }

    /// Whether a path holds just this.
    pub(crate) async fn holds(&self, path: &str, key: &str, value: &str) -> Result<bool> {
        let held = self.read(path).await?.unwrap_or_default();
        Ok(held.iter().map(|(key, value)| (&**key, &**value)).eq([(key, value)]))
    }

    /// How many versions were written at a path, and whether it bears a mark.
    pub(crate) async fn versions(&self, path: &str) -> Result<(u64, bool)> {
        let metadata = self.vault.metadata(&self.locate(path).await?).await?;
        Ok(metadata.map_or((0, false), |metadata| (metadata.current_version, !metadata.custom_metadata.is_empty())))
    }

    /// The content of a path, whether it bears a mark, and how many versions were written.
    pub(crate) async fn state_of(&self, path: &str) -> Result<Value> {
        let (versions, marked) = self.versions(path).await?;
        Ok(json!({ "held": self.read(path).await?, "marked": marked, "versions": versions }))
    }
}

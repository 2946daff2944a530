//! A control plane, a zopp server and a Vault, and the process of all jobs.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use konverge_e2e::{followed_deployment, quoted};
pub(crate) use konverge_testkit::until_true as until;
use konverge_testkit::{Process, ProcessSpec, free_port, http_get, metric};
use konverge_testkit_stores::{VaultOptions, VaultServer, VaultServerError};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

/// The condition of [`until`].
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Far longer than anything here takes, on a machine that does other things, too.
pub(crate) const SOON: Duration = Duration::from_secs(90);

/// The shipped manifests.
pub(crate) const ROLE: &str = include_str!("../../../../deploy/rbac/konverge.yaml");

/// All that the jobs speak to.
pub(crate) struct Stage {
    pub(crate) zopp: konverge_e2e::Stage,
    pub(crate) vault: VaultServer,
}

impl Stage {
    /// One of a test's own: its clients live as long as the runtime of the test that made them.
    pub(crate) async fn set() -> Result<Self> {
        // The role that is shipped is one of a whole cluster.
        let zopp = konverge_e2e::Stage::set_on_ours().await?;
        let vault = VaultServer::start(VaultOptions::default()).await?;
        vault.mount_kv("secret", 2).await?;
        Ok(Self { zopp, vault })
    }

    /// A namespace with a Secret that zopp fills, and what is shipped, installed in another.
    pub(crate) async fn scene(&self, name: &str) -> Result<Scene<'_>> {
        let plane = &self.zopp.control_plane;
        let home = plane.namespace("konverge").await?;
        // Objects of the whole cluster are named after it, so that several do not take each other's away; so is the account.
        let role = ROLE.replace("konverge-system", &home).replace("name: konverge", &format!("name: {home}"));
        let kubeconfig = plane.install(&home, &home, &role).await?.kubeconfig().to_owned();
        let namespace = plane.namespace(name).await?;
        let environment = self.zopp.environment(name).await?;
        let client = self.zopp.client().clone();
        let scene = Scene { stage: self, client, namespace, environment, home, kubeconfig };
        self.zopp.bind(&scene.namespace, SECRET, &scene.environment).await?;
        Ok(scene)
    }
}

/// The Secret: zopp fills it, push sends it to Vault, and the Deployment uses it.
pub(crate) const SECRET: &str = "db";

/// The Deployment that uses it.
pub(crate) const DEPLOYMENT: &str = "web";

/// A namespace, and people who look at what is in it and around it.
pub(crate) struct Scene<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    environment: String,
    /// Where the process lives, and its leases.
    pub(crate) home: String,
    pub(crate) kubeconfig: PathBuf,
}

impl Scene<'_> {
    /// The lines of all jobs, for this namespace.
    pub(crate) fn lines(&self, elect: bool) -> [String; 3] {
        let Stage { zopp, vault } = self.stage;
        let common = format!("--kubeconfig {} --namespace {}", quoted(&path(&self.kubeconfig)), self.namespace);
        let elects = |flag: &'static str| if elect { flag } else { "" };
        [
            format!(
                "pull {common} --server {} --credentials {} {}",
                zopp.server.url(),
                quoted(&path(zopp.credentials())),
                elects("--leader-elect")
            ),
            format!(
                "push {common} -vault-addr {} -vault-auth-method=token --enable-metrics-auth=false \
                 --allow-path '*=secret/data/{{namespace}}/*' {}",
                vault.address(),
                elects("-leader-elect")
            ),
            format!("roll {common} --min-interval 0s --rollout-timeout 0s {}", elects("--leader-elect")),
        ]
    }

    /// Starts the process with these jobs, and waits until all of them are ready.
    pub(crate) async fn start(&self, lines: &[String]) -> Result<Running> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut spec = ProcessSpec::new("konverge", env!("CARGO_BIN_EXE_konverge"))
            .args(["run", "--bind-address", &address])
            .env("VAULT_TOKEN", self.stage.vault.root_token());
        for line in lines {
            spec = spec.args(["--job", line]);
        }
        let process = Process::start(self.stage.zopp.control_plane.run_directory(), spec)?;
        let mut running = Running { process, address };
        let address = running.address.clone();
        let is_ready = || async { http_get(&address, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
        running.process.ready("become ready", SOON, is_ready).await?;
        Ok(running)
    }

    /// Sets the value in zopp.
    pub(crate) async fn set(&self, value: &str) -> Result<()> {
        self.stage.zopp.user.set(&self.environment, "PASSWORD", value.as_bytes()).await
    }

    /// Applies a Deployment that uses the Secret, whose Secret is to be in Vault, and which is rolled when that changes.
    pub(crate) async fn deploy(&self) -> Result<()> {
        let mut deployment = followed_deployment(DEPLOYMENT, SECRET);
        deployment["metadata"]["annotations"]["vault-sync.io/path"] = self.path().into();
        let parameters = PatchParams::apply("user");
        self.deployments().patch(DEPLOYMENT, &parameters, &Patch::Apply(deployment)).await?;
        Ok(())
    }

    pub(crate) fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn path(&self) -> String {
        format!("secret/data/{}/{DEPLOYMENT}", self.namespace)
    }

    /// Whether the Secret has this value.
    pub(crate) async fn is_pulled(&self, value: &str) -> Result<bool, BoxError> {
        let secret = Api::<Secret>::namespaced(self.client.clone(), &self.namespace).get(SECRET).await?;
        Ok(secret.data.is_some_and(|data| data.get("PASSWORD").is_some_and(|held| held.0 == value.as_bytes())))
    }

    /// Returns Vault's content at the path of the Deployment's Secret: values, and the version number. Nothing if there is nothing.
    pub(crate) async fn pushed(&self) -> Result<Option<(Value, u64)>> {
        let path = format!("{}/{SECRET}", self.path());
        match self.stage.vault.request("GET", &path, &Value::Null).await {
            Ok(answer) => {
                let version = answer["data"]["metadata"]["version"].as_u64().context("a version")?;
                Ok(Some((answer["data"]["data"].clone(), version)))
            }
            Err(VaultServerError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn is_pushed(&self, value: &str) -> Result<bool, BoxError> {
        Ok(self.pushed().await?.is_some_and(|(held, _)| held == json!({ "PASSWORD": value })))
    }

    /// Whether the pod template of the Deployment bears the mark of a rollout.
    pub(crate) async fn is_stamped(&self) -> Result<bool, BoxError> {
        let spec = self.deployments().get(DEPLOYMENT).await?.spec.context("a spec")?;
        let annotations = spec.template.metadata.and_then(|metadata| metadata.annotations).unwrap_or_default();
        Ok(annotations.contains_key("roll.konverge.dev/content"))
    }

    /// Whether roll knows with what the pods run.
    pub(crate) async fn is_noted(&self) -> Result<bool, BoxError> {
        let annotations = self.deployments().get(DEPLOYMENT).await?.metadata.annotations.unwrap_or_default();
        Ok(annotations.contains_key("roll.konverge.dev/record"))
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// The process of all jobs.
pub(crate) struct Running {
    pub(crate) process: Process,
    /// Where it serves health and metrics.
    pub(crate) address: String,
}

impl Running {
    /// Status and body of a page.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        http_get(&self.address, path).await.unwrap()
    }

    /// The sum of a metric of a job over all its label sets that contain `label`.
    pub(crate) async fn metric(&self, job: &str, name: &str, label: &str) -> f64 {
        metric(&self.get(&format!("/metrics/{job}")).await.1, name, label)
    }

    /// Waits until none of these jobs has anything left to do.
    pub(crate) async fn settled(&self, jobs: &[&str]) {
        let scrape = async || {
            let mut all = String::new();
            for job in jobs {
                all.push_str(&self.get(&format!("/metrics/{job}")).await.1);
            }
            all
        };
        konverge_testkit::settled(Duration::from_secs(1), scrape).await;
    }
}

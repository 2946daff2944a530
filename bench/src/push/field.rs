//! Annotated Secrets, a Vault, and an operator that has not been started yet.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use konverge_core::SecretValue;
use konverge_e2e::{Operator, PushStage, Vault};
use konverge_testkit::{ControlPlane, eventually};
use konverge_testkit_stores::VaultStorage;
use konverge_vault::{Content, Expected, Owner, VersionState};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::PartialObjectMeta,
};
use serde_json::json;

/// Requests to Vault at the same time: the operator's default, also for the loop that is its limit.
pub(crate) const CONCURRENCY: usize = 32;

/// As many workers as requests, and no rate: the loop has none either.
const ARGUMENTS: [&str; 3] = ["--workers=32", "--vault-concurrency=32", "--vault-rate=0"];

/// The key that each Secret has.
const KEY: &str = "VALUE";

/// Far beyond what anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_mins(5);

/// Between two looks at all Secrets. Each makes the operator write all its metrics, which users have it do every 15 s or more.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct Field {
    pub(crate) stage: PushStage,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// An administrator, who looks.
    pub(crate) vault: Vault,
    /// Somebody with the operator's rights, as many of whose requests as the operator's are under way at the same time.
    peer: Vault,
    pub(crate) bindings: u16,
}

impl Field {
    /// Makes the Secrets. Nothing is in Vault.
    pub(crate) async fn set(control_plane: &ControlPlane, bindings: u16) -> Result<Self> {
        eprintln!("push: setting the stage with {bindings} annotated Secrets");
        let namespace = control_plane.namespace("push").await?;
        let mut stage = PushStage::set(control_plane, &namespace, VaultStorage::Memory, &ARGUMENTS).await?;
        stage.operator().process().kill();
        let (client, vault, peer) =
            (control_plane.admin_client().await?, stage.vault(CONCURRENCY)?, stage.peer(CONCURRENCY).await?);
        let field = Self { stage, client, namespace, vault, peer, bindings };
        let all = stream::iter(0..bindings).map(async |number| field.put(&name(number), "initial", true).await);
        all.buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        Ok(field)
    }

    /// Where a Secret is kept in Vault.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("secret/data/{}/{name}", self.namespace)
    }

    /// Gives a Secret its value.
    pub(crate) async fn put(&self, name: &str, value: &str, bound: bool) -> Result<()> {
        // The shortest interval, so that rest has something to it.
        let annotations = json!({ "vault-sync.io/path": self.path(name), "vault-sync.io/reconcile": "30s" });
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": name, "annotations": if bound { annotations } else { json!({}) } },
            "stringData": { KEY: value },
        });
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let applied = api.patch(name, &PatchParams::apply("bench"), &Patch::Apply(&secret)).await;
        applied.map(drop).with_context(|| format!("cannot apply secret {name}"))
    }

    /// The operator, which runs from now on.
    pub(crate) fn start(&mut self) -> Result<&mut Operator> {
        self.stage.operator().process().start_again()?;
        Ok(self.stage.operator())
    }

    /// Waits until all is in Vault and noted on the Secrets.
    pub(crate) async fn in_sync(&mut self) -> Result<()> {
        let all = f64::from(self.bindings);
        let operator = self.stage.operator();
        let synced = async || {
            tokio::time::sleep(LOOK).await;
            let count = operator.metric("konverge_push_bindings", "reason=\"Synced\"").await.ok()?;
            (count >= all).then_some(())
        };
        eventually(LIMIT, synced).await.context("not all Secrets come to Vault")?;
        let noted = async || {
            tokio::time::sleep(LOOK).await;
            (self.noted().await.ok()? == usize::from(self.bindings)).then_some(())
        };
        eventually(LIMIT, noted).await.context("not all Secrets say that they are in sync")
    }

    /// Returns how many Secrets say that they are in sync.
    async fn noted(&self) -> Result<usize> {
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let secrets = api.list_metadata(&ListParams::default()).await?;
        let says_so = |secret: &&PartialObjectMeta<Secret>| {
            secret.annotations().get("vault-sync.io/status").is_some_and(|record| record.contains(r#""Synced""#))
        };
        Ok(secrets.iter().filter(says_so).count())
    }

    /// A metric of the operator.
    pub(crate) async fn metric(&mut self, name: &str) -> Result<f64> {
        self.stage.operator().metric(name, "").await
    }

    /// The newest version of each annotated Secret.
    pub(crate) async fn versions(&self) -> Result<Vec<VersionState>> {
        let all = stream::iter(0..self.bindings).map(async |number| {
            let path = self.path(&name(number));
            let held = self.vault.read(&path).await?;
            Ok::<_, anyhow::Error>(held.with_context(|| format!("{path} is not in Vault"))?.version)
        });
        all.buffer_unordered(CONCURRENCY).try_collect().await
    }

    /// One turn of the loop: reads a Secret, writes it if it is unchanged since, notes the owner.
    pub(crate) async fn read_write_and_mark(&self, name: &str, value: &str) -> Result<()> {
        self.write_and_mark(name, value, self.read_bare(name).await?).await
    }

    /// One read and nothing else. Gives what a write has to find.
    pub(crate) async fn read_bare(&self, name: &str) -> Result<Expected> {
        Ok(self.peer.client().read(&Vault::location(&self.path(name))?).await?.expected())
    }

    /// The same by a client that knows the present content.
    pub(crate) async fn write_and_mark(&self, name: &str, value: &str, expected: Expected) -> Result<()> {
        self.write_bare(name, value, expected).await?;
        let text = |part: &str| format!("{part} of the loop");
        let (prefix, name_in_mark) = ("bench".to_owned(), name.to_owned());
        let owner = Owner { prefix, name: name_in_mark, uid: text("uid"), instance: text("instance") };
        self.peer.client().annotate(&Vault::location(&self.path(name))?, &owner.mark()?).await?;
        Ok(())
    }

    /// One write and nothing else. Gives the version.
    pub(crate) async fn write_bare(&self, name: &str, value: &str, expected: Expected) -> Result<VersionState> {
        let content: Content = [(KEY.to_owned(), SecretValue::from(value.to_owned()))].into_iter().collect();
        let location = Vault::location(&self.path(name))?;
        let version = self.peer.client().write(&location, &content, expected).await?;
        version.context("an engine of version 2 has versions")
    }

    /// Waits until an annotated Secret's value is in Vault; gives when Vault wrote it.
    pub(crate) async fn arrived(&self, name: &str, value: &str) -> Result<Timestamp> {
        let path = self.path(name);
        let holds = async || {
            let held = self.vault.read(&path).await.ok()??;
            (held.fields.get(KEY).map(String::as_str) == Some(value)).then_some(held.version)
        };
        let version = eventually(LIMIT, holds).await.with_context(|| format!("{path} does not get {value}"))?;
        written(&version)
    }
}

/// The name of an annotated Secret.
pub(crate) fn name(number: u16) -> String {
    format!("bound-{number}")
}

/// When Vault wrote a version, by the clock of this machine.
pub(crate) fn written(version: &VersionState) -> Result<Timestamp> {
    version.created.parse().with_context(|| format!("Vault wrote at {:?}", version.created))
}

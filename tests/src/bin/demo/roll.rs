//! Roll: what uses a changed Secret, or a changed secret in Vault, restarts once, and only then.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use konverge_e2e::{Cast, RollStage, Vault, followed_deployment, quoted, yaml};
use konverge_testkit::{eventually, http_get, metric};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

use crate::{LIMIT, LIMIT_AGAIN, told};

const DEPLOYMENT: &str = "worker";

/// The Secret that the Deployment uses.
const SECRET: &str = "queue";

/// Here nobody waits for the minute between two rollouts, nor for pods, which a cluster without nodes never has.
const SETTINGS: [&str; 4] = ["--min-interval", "0s", "--rollout-timeout", "0s"];

/// The kind that the original brought.
const DEFINITION: &str = include_str!("../../../../deploy/crds/vaultsyncstatus.yaml");

/// Shows it, with an operator that joins the others.
pub(crate) async fn show(cast: &mut Cast, namespace: &str) -> Result<()> {
    println!("\nAnd who restarts when a Secret has changed.");
    let began = Instant::now();
    let plane = &cast.stage().control_plane;
    let push = cast.push().context("there is no Vault")?;
    // Nobody's cluster gets a definition for a demo.
    let follows_vault = plane.is_ours();
    if follows_vault {
        plane.apply(DEFINITION).await?;
    }
    let (address, token) = (push.server().address().to_owned(), push.follower().await?);
    let token = token.to_str().context("the path of the token is no text")?;
    let of_vault = ["--vault-addr", &address, "--vault-auth-method", "token", "--vault-token-file", token];
    let settings = [&SETTINGS, of_vault.as_slice(), &["--vault-interval", "1s"]].concat();
    let vault = push.vault(1)?;
    let stage = RollStage::set(plane, namespace, &settings).await?;
    told(began, "vault-rollout-operator is ready, under its own service account");
    let address = stage.address().to_owned();
    let client = cast.stage().client().clone();
    let observer = Observer::begin(Api::namespaced(client.clone(), namespace));
    let scene = Scene { client, vault, namespace: namespace.to_owned(), address, observer };
    cast.follow(stage);

    println!("\nA Deployment asks to be rolled when the content of what its pods use changes:\n");
    for line in yaml(&followed_deployment(DEPLOYMENT, SECRET))?.lines() {
        println!("    {line}");
    }
    println!("\nValues are written, and somebody else counts how often its pod template changes:\n");
    cast.perform(async |again| scene.begin(again).await).await?;
    cast.perform(async |again| scene.change("password changed", "two", 1, again).await).await?;
    cast.perform(async |again| scene.repeat("two", 1, again).await).await?;
    cast.roll().context("there is no operator to kill")?.operator().kill();
    cast.perform(async |_| scene.fill("three").await).await?;
    println!("  operator killed with SIGKILL, and the password changed meanwhile");
    cast.roll().context("there is no operator to start")?.operator().start_again().await?;
    cast.perform(async |again| scene.rolled("operator started", 2, again, None).await).await?;
    if !follows_vault {
        println!(
            "\nThat it follows a secret in Vault is not shown: your cluster would have to get the definition of VaultSyncStatus."
        );
        return Ok(());
    }
    println!("\nA VaultSyncStatus, as the original has it, asks for the same Deployment and a secret in Vault:\n");
    for line in yaml(&scene.vault_sync_status())?.lines() {
        println!("    {line}");
    }
    println!();
    cast.perform(async |again| scene.follow(again).await).await?;
    cast.perform(async |again| scene.write(2, 3, again).await).await?;
    Ok(())
}

/// Prints what can be played with.
pub(crate) fn explain(namespace: &str) {
    let rotate = json!({ "stringData": { "password": "four" } }).to_string();
    println!("  kubectl patch secret {SECRET} -n {namespace} -p {}", quoted(&rotate));
    println!("  kubectl get deployment {DEPLOYMENT} -n {namespace} -o yaml");
}

/// Where the changes are made and seen.
struct Scene {
    client: Client,
    vault: Vault,
    namespace: String,
    /// Where the operator tells what it has done.
    address: String,
    observer: Observer,
}

/// An observer that counts the changes of the pod template.
struct Observer {
    changes: watch::Receiver<(u32, Instant)>,
    task: JoinHandle<()>,
}

impl Observer {
    fn begin(api: Api<Deployment>) -> Self {
        let (sender, changes) = watch::channel((0, Instant::now()));
        let only = watcher::Config::default().fields(&format!("metadata.name={DEPLOYMENT}"));
        let task = tokio::spawn(async move {
            let mut objects = pin!(watcher(api, only).default_backoff().touched_objects());
            let mut last = None;
            while let Some(object) = objects.next().await {
                // The next list delivers the changes that an interrupted watch missed.
                let Ok(object) = object else { continue };
                let now = object.spec.map(|spec| spec.template);
                if last.is_some() && now != last {
                    sender.send_modify(|(count, at)| (*count, *at) = (*count + 1, Instant::now()));
                }
                last = now;
            }
        });
        Self { changes, task }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scene {
    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn fill(&self, password: &str) -> Result<()> {
        let written = format!("{:?}", Instant::now());
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            // Another version each time, whatever is in it.
            "metadata": { "name": SECRET, "annotations": { "example.com/written": written } },
            "stringData": { "password": password },
        });
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let applied = secrets.patch(SECRET, &PatchParams::apply("user"), &Patch::Apply(&secret)).await;
        applied.map(drop).context("cannot apply the Secret")
    }

    /// Both are there, and the operator has noted with what the pods run.
    async fn begin(&self, again: bool) -> Result<()> {
        self.fill("one").await?;
        let manifest = Patch::Apply(followed_deployment(DEPLOYMENT, SECRET));
        let applied = self.deployments().patch(DEPLOYMENT, &PatchParams::apply("user"), &manifest).await;
        applied.context("cannot apply the Deployment")?;
        let is_noted = async || {
            let seen = self.deployments().get_metadata(DEPLOYMENT).await.ok()?;
            seen.metadata.annotations?.contains_key("roll.konverge.dev/record").then_some(())
        };
        eventually(limit(again), is_noted).await.context("the Deployment is not taken note of")?;
        println!("  {:20} first sight rolls nothing", "both applied");
        Ok(())
    }

    /// Writes a password, and reports the time from then until the last of these rollouts.
    async fn change(&self, what: &str, password: &str, rollouts: u32, again: bool) -> Result<()> {
        let began = Instant::now();
        self.fill(password).await?;
        self.rolled(what, rollouts, again, Some(began)).await
    }

    /// Waits until there have been exactly this number of rollouts.
    async fn rolled(&self, what: &str, rollouts: u32, again: bool, began: Option<Instant>) -> Result<()> {
        let is_rolled = async || Some(*self.observer.changes.borrow()).filter(|(count, _)| *count >= rollouts);
        let (_, seen) = eventually(limit(again), is_rolled).await.context("the Deployment was not rolled")?;
        self.are(rollouts)?;
        // A repeated step may have been seen the first time.
        match began.filter(|_| !again) {
            Some(began) => println!("  {what:20} one rollout, {} ms after it began", (seen - began).as_millis()),
            None => println!("  {what:20} one rollout"),
        }
        Ok(())
    }

    /// Writes what is there already, and waits until the operator has seen that.
    async fn repeat(&self, password: &str, rollouts: u32, again: bool) -> Result<()> {
        let before = self.checks().await?;
        self.fill(password).await?;
        let has_seen = async || self.checks().await.ok().filter(|now| *now > before);
        eventually(limit(again), has_seen).await.context("the operator has not looked at the Secret")?;
        self.are(rollouts)?;
        println!("  {:20} no rollout", "the same once more");
        Ok(())
    }

    /// Where in Vault the secret is.
    fn path(&self) -> String {
        format!("{}/{DEPLOYMENT}", self.namespace)
    }

    fn vault_sync_status(&self) -> Value {
        json!({
            "apiVersion": "stable.example.com/v1",
            "kind": "VaultSyncStatus",
            "metadata": { "name": DEPLOYMENT },
            "spec": {
                "deployName": DEPLOYMENT,
                "deployNamespace": self.namespace,
                "secretEngine": "secret",
                "secretPath": self.path(),
            },
        })
    }

    /// Writes this version of the secret, unless it is there.
    async fn put(&self, version: u64) -> Result<()> {
        let path = format!("secret/data/{}", self.path());
        let there = self.vault.read(&path).await?.map_or(0, |held| held.version.number);
        if there < version {
            self.vault.write(&path, "password", &format!("number {version}")).await?;
        }
        Ok(())
    }

    /// The object is there, and says that the pods run with the first version.
    async fn follow(&self, again: bool) -> Result<()> {
        self.put(1).await?;
        let kind = GroupVersionKind::gvk("stable.example.com", "v1", "VaultSyncStatus");
        let resource = ApiResource::from_gvk_with_plural(&kind, "vaultsyncstatus");
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let manifest = Patch::Apply(self.vault_sync_status());
        let applied = api.patch(DEPLOYMENT, &PatchParams::apply("user"), &manifest).await;
        applied.context("cannot apply the VaultSyncStatus")?;
        let is_in_sync = async || {
            let object = api.get(DEPLOYMENT).await.ok()?;
            (object.data["status"]["vault_sync"]["SyncStatus"] == "Already in Sync").then_some(())
        };
        eventually(limit(again), is_in_sync).await.context("the VaultSyncStatus does not say that all is in sync")?;
        println!("  {:20} first sight rolls nothing", "it is applied");
        Ok(())
    }

    /// Writes a version in Vault, and waits for this number of rollouts.
    async fn write(&self, version: u64, rollouts: u32, again: bool) -> Result<()> {
        let began = Instant::now();
        self.put(version).await?;
        self.rolled(&format!("version {version} in Vault"), rollouts, again, Some(began)).await
    }

    fn are(&self, rollouts: u32) -> Result<()> {
        let (seen, _) = *self.observer.changes.borrow();
        anyhow::ensure!(seen == rollouts, "the Deployment was rolled {seen} times and not {rollouts}");
        Ok(())
    }

    /// How often the operator has read a Secret.
    async fn checks(&self) -> Result<f64> {
        let (_, text) = http_get(&self.address, "/metrics").await.context("cannot read the operator's metrics")?;
        Ok(metric(&text, "konverge_roll_checks_total", ""))
    }
}

fn limit(again: bool) -> Duration {
    if again { LIMIT_AGAIN } else { LIMIT }
}

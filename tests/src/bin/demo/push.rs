//! Push: what is changed in a Secret that a Deployment uses is in Vault, and goes with the Deployment.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use konverge_e2e::{Cast, Held, PushStage, Vault, annotated_deployment, quoted, yaml};
use konverge_testkit::eventually;
use konverge_testkit_stores::VaultStorage;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{LIMIT, LIMIT_AGAIN, told};

const DEPLOYMENT: &str = "shop";

/// The Secret that the Deployment uses.
const SECRET: &str = "db";

/// Only beneath the folder of its own namespace, as `deploy/vault-sync-operator.yaml` has it.
const BOUNDARY: &str = "--allow-path=*=secret/data/{namespace}/*";

/// Shows it on a stage of its own, which joins the other. The end is that nothing is left in Vault, or if it is to be played with, that
/// there is something.
pub(crate) async fn show(cast: &mut Cast, namespace: &str, keep: bool) -> Result<()> {
    println!("\nThe other direction. Setting the stage: Vault.");
    let began = Instant::now();
    let stage = PushStage::set(&cast.stage().control_plane, namespace, VaultStorage::File, &[BOUNDARY]).await?;
    told(began, "vault-sync-operator is ready, under its own service account and the policy that we ship");
    let scene =
        Scene { vault: stage.vault(1)?, client: cast.stage().client().clone(), namespace: namespace.to_owned() };
    cast.enter(stage);

    println!("\nA Deployment whose pods use the Secret {SECRET} says where in Vault that is to be:\n");
    for line in yaml(&scene.manifest())?.lines() {
        println!("    {line}");
    }
    println!("\nIt is applied, and changed as anybody would, and somebody else reads Vault:\n");
    let (one, two) = ([("password", "one"), ("user", "shop")], [("password", "two"), ("user", "shop")]);
    let fill = async |_| scene.fill(&one).await;
    cast.perform(fill).await?;
    scene.change(cast, "Deployment applied", async || scene.deploy().await, Some(&one)).await?;
    scene.change(cast, "password rotated", async || scene.fill(&two).await, Some(&two)).await?;
    println!(
        "\nAfter its object, content stays for 10 s, in case the object returns or another one requests the path:\n"
    );
    scene.change(cast, "Deployment deleted", async || scene.undeploy().await, None).await?;
    println!("\nOf what was there Vault keeps deleted versions, which can be undeleted, as the default policy has it.");
    if keep {
        scene.change(cast, "Deployment applied", async || scene.deploy().await, Some(&two)).await?;
    }
    Ok(())
}

/// Prints where Vault is, and how to get in.
pub(crate) fn explain_exports(cast: &Cast) -> Result<()> {
    let server = cast.push().context("there is no Vault")?.server();
    println!("  export VAULT_ADDR={} VAULT_TOKEN={}", quoted(server.address()), quoted(server.root_token()));
    Ok(())
}

/// Prints what can be played with.
pub(crate) fn explain(namespace: &str) {
    let rotate = json!({ "stringData": { "password": "three" } }).to_string();
    println!("  kubectl patch secret {SECRET} -n {namespace} -p {}", quoted(&rotate));
    println!("  curl -sH \"X-Vault-Token: $VAULT_TOKEN\" $VAULT_ADDR/v1/{}", path(namespace));
}

fn path(namespace: &str) -> String {
    format!("secret/data/{namespace}/{DEPLOYMENT}/{SECRET}")
}

/// Where the changes are made and seen.
struct Scene {
    vault: Vault,
    client: Client,
    namespace: String,
}

impl Scene {
    fn manifest(&self) -> Value {
        annotated_deployment(DEPLOYMENT, SECRET, &format!("secret/data/{}/{DEPLOYMENT}", self.namespace))
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn deploy(&self) -> Result<()> {
        let manifest = Patch::Apply(self.manifest());
        let applied = self.deployments().patch(DEPLOYMENT, &PatchParams::apply("user"), &manifest).await;
        applied.map(drop).context("cannot apply the Deployment")
    }

    async fn undeploy(&self) -> Result<()> {
        match self.deployments().delete(DEPLOYMENT, &DeleteParams::default()).await {
            // The first time it was killed behind the deed.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            outcome => outcome.map(drop).context("cannot delete the Deployment"),
        }
    }

    async fn fill(&self, fields: &[(&str, &str)]) -> Result<()> {
        let data: BTreeMap<&str, &str> = fields.iter().copied().collect();
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": SECRET },
            "stringData": data,
        });
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let applied = secrets.patch(SECRET, &PatchParams::apply("user"), &Patch::Apply(&secret)).await;
        applied.map(drop).context("cannot apply the Secret")
    }

    /// Makes a change, and says how long after the API server's answer, and after its start, Vault held exactly this, or nothing.
    async fn change(
        &self,
        cast: &mut Cast,
        what: &str,
        change: impl AsyncFn() -> Result<()>,
        expected: Option<&[(&str, &str)]>,
    ) -> Result<()> {
        let act = async |again| {
            let began = Instant::now();
            let limit = if again { LIMIT_AGAIN } else { LIMIT };
            let changed = async { change().await.map(|()| Instant::now()) };
            let (changed, (seen, held)) = tokio::try_join!(changed, self.holds(expected, limit))?;
            let place = if expected.is_some() { "in Vault" } else { "gone from Vault" };
            if again {
                // It may have been so since the first time, so there is nothing to measure.
                println!("  {what:20} {place}");
            } else {
                println!(
                    "  {what:20} {place} {:3} ms after the API server's answer, {:3} ms after it began",
                    seen.saturating_duration_since(changed).as_millis(),
                    seen.saturating_duration_since(began).as_millis()
                );
            }
            if let Some(Held { fields, version }) = held {
                let keys: Vec<&str> = fields.keys().map(String::as_str).collect();
                println!("    {}: {}, version {}", path(&self.namespace), keys.join(" and "), version.number);
            }
            Ok(())
        };
        cast.perform(act).await
    }

    /// Waits until Vault is seen to hold exactly this, or nothing, and then the Deployment to be gone; gives when Vault was.
    async fn holds(&self, expected: Option<&[(&str, &str)]>, limit: Duration) -> Result<(Instant, Option<Held>)> {
        let path = path(&self.namespace);
        let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        let expected: Option<BTreeMap<String, String>> = expected.map(|fields| fields.iter().map(owned).collect());
        let seen = eventually(limit, async || {
            let held = self.vault.read(&path).await.ok()?;
            let is_it = held.as_ref().map(|held| &held.fields) == expected.as_ref();
            is_it.then(|| (Instant::now(), held))
        });
        let seen = seen.await.with_context(|| format!("{path} was not seen to be as it should"))?;
        if expected.is_none() {
            let gone = async || self.deployments().get_metadata_opt(DEPLOYMENT).await.ok()?.is_none().then_some(());
            eventually(limit, gone).await.context("the Deployment is not let go")?;
        }
        Ok(seen)
    }
}

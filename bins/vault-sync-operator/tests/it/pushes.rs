//! A life of two `VaultPush`es: one takes the Secrets that bear a label, the other merges into a path that a person keeps a key in.

use konverge_testkit_stores::VaultServer;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    lives::Life,
    stage::{Result, View},
};

/// Beneath the namespace's folder: where each Secret with the label goes, and what is shared.
const PATHS: [&str; 3] = ["tiers/cert", "tiers/db", "shared"];

/// A `VaultPush` by labels, and one into a path that others keep keys in.
#[derive(Clone, Copy)]
pub(crate) struct Pushes;

impl Life for Pushes {
    const NAME: &str = "pushes";
    const STEPS: usize = 4;

    async fn change(self, view: &View, step: usize) -> Result<()> {
        match step {
            0 => {
                view.write(&view.path("shared"), "theirs", "1").await?;
                for name in ["cert", "db"] {
                    view.secret(name, &[("n", "1")], None).await?;
                    label(view, name, "gold".into()).await?;
                }
                let selector = json!({ "matchLabels": { "tier": "gold" } });
                let spec = json!({ "secrets": { "selector": selector }, "mount": "secret", "path": view.path_in_engine("tiers/{secret}") });
                let tiers = json!({
                    "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultPush", "metadata": { "name": "tiers" }, "spec": spec,
                });
                let parameters = PatchParams::apply("user").force();
                view.api("VaultPush").patch("tiers", &parameters, &Patch::Apply(&tiers)).await?;
                view.vault_push("shared", "db", &view.path("shared")).await
            }
            1 => view.secret("db", &[("n", "2")], None).await,
            2 => label(view, "cert", Value::Null).await,
            _ => {
                view.delete("VaultPush", "tiers").await?;
                view.delete("VaultPush", "shared").await
            }
        }
    }

    async fn is_converged(self, view: &View, step: usize) -> Result<bool> {
        if step == 3 {
            return Ok(view.is_gone("VaultPush", "tiers").await? && view.is_gone("VaultPush", "shared").await?);
        }
        let [cert, db, shared] = PATHS.map(|rest| view.path(rest));
        let tiers = if step == 2 { vec![&*db] } else { vec![&*cert, &*db] };
        let now = if step == 0 { "1" } else { "2" };
        let together = [("n", now), ("theirs", "1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        Ok(view.is_synced("VaultPush", "tiers", &tiers).await?
            && view.is_synced("VaultPush", "shared", &[&shared]).await?
            && view.holds(&db, "n", now).await?
            && view.read(&shared).await? == Some(together.into())
            && if step == 2 { view.read(&cert).await?.is_none() } else { view.holds(&cert, "n", "1").await? })
    }

    /// The final state in Vault: the paths, their content, whether they are marked, and how often each was written.
    async fn left(self, server: &VaultServer, view: &View) -> Result<Value> {
        let mut state = json!({});
        for rest in PATHS {
            state[rest] = view.state_of(&view.path(rest)).await?;
        }
        for folder in ["", "tiers/"] {
            let folder_route = format!("secret/metadata/{}/{folder}", view.namespace);
            state["paths"][folder] = server.request("LIST", &folder_route, &Value::Null).await?["data"]["keys"].clone();
        }
        Ok(state)
    }
}

/// Sets the label by which a Secret is taken, or removes it.
async fn label(view: &View, name: &str, tier: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "tier": tier } } }));
    view.api("Secret").patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

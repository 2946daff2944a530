//! A life of a Secret and a Deployment that both ask for a push: made, rotated, moved, deleted.

use konverge_testkit_stores::VaultServer;
use serde_json::{Value, json};

use crate::{
    lives::Life,
    stage::{Result, View},
};

/// Whole Secrets and Deployments, on version 2, softly deleted.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

impl Life for Plain {
    const NAME: &str = "life";
    const STEPS: usize = 4;

    async fn change(self, view: &View, step: usize) -> Result<()> {
        let whole = view.path("whole");
        match step {
            0 => {
                view.secret("db", &[("n", "1")], Some(&whole)).await?;
                view.deployment("app", "db", &view.path("app")).await
            }
            1 => view.secret("db", &[("n", "2")], Some(&whole)).await,
            2 => view.deployment("app", "db", &view.path("moved")).await,
            _ => {
                view.delete("Deployment", "app").await?;
                view.delete("Secret", "db").await
            }
        }
    }

    async fn is_converged(self, view: &View, step: usize) -> Result<bool> {
        let [whole, app, moved] = ["whole", "app/db", "moved/db"].map(|rest| view.path(rest));
        if step == 3 {
            return Ok(view.is_gone("Deployment", "app").await? && view.is_gone("Secret", "db").await?);
        }
        let now = if step == 0 { "1" } else { "2" };
        let at = if step == 2 { &moved } else { &app };
        Ok(view.is_synced("Secret", "db", &[&whole]).await?
            && view.is_synced("Deployment", "app", &[at]).await?
            && view.holds(&whole, "n", now).await?
            && view.holds(at, "n", now).await?
            && (step < 2 || view.read(&app).await?.is_none()))
    }

    /// The final state in Vault: the paths, whether anything can be read there or is marked, and how often each was written. A write without a response
    /// is read before it would be repeated, so the count is the same as without faults.
    async fn left(self, server: &VaultServer, view: &View) -> Result<Value> {
        let mut state = json!({});
        for rest in ["whole", "app/db", "moved/db"] {
            state[rest] = view.state_of(&view.path(rest)).await?;
        }
        for folder in ["", "app/", "moved/"] {
            let listed =
                server.request("LIST", &format!("secret/metadata/{}/{folder}", view.namespace), &Value::Null).await?;
            state["paths"][folder] = listed["data"]["keys"].clone();
        }
        Ok(state)
    }
}

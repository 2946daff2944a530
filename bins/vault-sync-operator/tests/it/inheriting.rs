//! A life of Secrets that lose their requests or go, with a grace period: one path is handed over, the others are cleared.

use konverge_testkit_stores::VaultServer;
use serde_json::{Value, json};

use crate::{
    lives::Life,
    stage::{Result, View},
};

/// The Secrets at first, each with a path of its name.
const SECRETS: [&str; 3] = ["handed", "left", "deleted"];

/// Requests and objects that go, with a grace period and the guard of deletions, and an heir.
#[derive(Clone, Copy)]
pub(crate) struct Inheriting;

impl Life for Inheriting {
    const NAME: &str = "inheriting";
    const STEPS: usize = 3;
    /// The runs mostly wait for the ends of grace periods.
    const AT_ONCE: usize = 8;
    /// So that crashes come while content waits for its deletion, and while deletions are counted.
    const FLAGS: &[&str] = &["-deletion-grace=1s", "-allow-deletes=false"];

    async fn change(self, view: &View, step: usize) -> Result<()> {
        match step {
            0 => {
                for name in SECRETS {
                    view.secret(name, &[("n", "1")], Some(&view.path(name))).await?;
                }
                Ok(())
            }
            1 => {
                view.secret("heir", &[("n", "1")], Some(&view.path("handed"))).await?;
                for name in ["handed", "left"] {
                    view.annotate("Secret", name, json!({ "vault-sync.io/path": null })).await?;
                }
                Ok(())
            }
            _ => {
                for name in ["deleted", "heir", "handed", "left"] {
                    view.delete("Secret", name).await?;
                }
                Ok(())
            }
        }
    }

    async fn is_converged(self, view: &View, step: usize) -> Result<bool> {
        match step {
            0 => {
                for name in SECRETS {
                    if !view.is_synced("Secret", name, &[&view.path(name)]).await? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            1 => Ok(view.is_synced("Secret", "heir", &[&view.path("handed")]).await?
                && view.holds(&view.path("handed"), "n", "1").await?
                && view.record("Secret", "handed").await?.is_none()
                && view.record("Secret", "left").await?.is_none()
                && view.read(&view.path("left")).await?.is_none()),
            _ => {
                for name in SECRETS {
                    let path = view.path(name);
                    if !view.is_gone("Secret", name).await?
                        || view.read(&path).await?.is_some()
                        || view.versions(&path).await?.1
                    {
                        return Ok(false);
                    }
                }
                view.is_gone("Secret", "heir").await
            }
        }
    }

    /// The final state in Vault: whether anything can be read or is marked, and how often each path was written. A path that is handed over is not
    /// written again.
    async fn left(self, _: &VaultServer, view: &View) -> Result<Value> {
        let mut state = json!({});
        for name in SECRETS {
            state[name] = view.state_of(&view.path(name)).await?;
        }
        Ok(state)
    }
}

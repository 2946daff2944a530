//! Lives of objects that ask for a push, for the tests that crash the operator in each of them.

use konverge_testkit_stores::VaultServer;
use serde_json::Value;

use crate::{
    forms, inheriting, life, pushes,
    stage::{Result, View},
};

/// The steps of a person, and their results.
pub(crate) trait Life: Copy + Sync {
    /// In lower case, with dashes.
    const NAME: &str;
    /// How many steps there are.
    const STEPS: usize;
    /// More flags for the operator. With some, it has an installation of its own.
    const FLAGS: &[&str] = &[];
    /// Takes a step.
    fn change(self, view: &View, step: usize) -> impl Future<Output = Result<()>> + Send;
    /// Whether the operator has done what that asks for.
    fn is_converged(self, view: &View, step: usize) -> impl Future<Output = Result<bool>> + Send;
    /// The final state in Vault.
    fn left(self, server: &VaultServer, view: &View) -> impl Future<Output = Result<Value>> + Send;
}

/// Whole Secrets and Deployments, on version 2, softly deleted.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

impl Life for Plain {
    const NAME: &str = "life";
    const STEPS: usize = life::STEPS;

    async fn change(self, view: &View, step: usize) -> Result<()> {
        life::change(view, step).await
    }

    async fn is_converged(self, view: &View, step: usize) -> Result<bool> {
        life::is_converged(view, step).await
    }

    async fn left(self, server: &VaultServer, view: &View) -> Result<Value> {
        life::vault_state(server, view).await
    }
}

/// Chosen keys, version 1, and the other policies of deletion.
#[derive(Clone, Copy)]
pub(crate) struct Forms;

impl Life for Forms {
    const NAME: &str = "forms";
    const STEPS: usize = forms::STEPS;

    async fn change(self, view: &View, step: usize) -> Result<()> {
        forms::change(view, step).await
    }

    async fn is_converged(self, view: &View, step: usize) -> Result<bool> {
        forms::is_converged(view, step).await
    }

    async fn left(self, server: &VaultServer, view: &View) -> Result<Value> {
        forms::vault_state(server, view).await
    }
}

/// A `VaultPush` by labels, and one into a path that others keep keys in.
#[derive(Clone, Copy)]
pub(crate) struct Pushes;

impl Life for Pushes {
    const NAME: &str = "pushes";
    const STEPS: usize = pushes::STEPS;

    async fn change(self, view: &View, step: usize) -> Result<()> {
        pushes::change(view, step).await
    }

    async fn is_converged(self, view: &View, step: usize) -> Result<bool> {
        pushes::is_converged(view, step).await
    }

    async fn left(self, server: &VaultServer, view: &View) -> Result<Value> {
        pushes::vault_state(server, view).await
    }
}

/// Requests and objects that go, with a grace period and the guard of deletions, and an heir.
#[derive(Clone, Copy)]
pub(crate) struct Inheriting;

impl Life for Inheriting {
    const NAME: &str = "inheriting";
    const STEPS: usize = inheriting::STEPS;
    const FLAGS: &[&str] = inheriting::FLAGS;

    async fn change(self, view: &View, step: usize) -> Result<()> {
        inheriting::change(view, step).await
    }

    async fn is_converged(self, view: &View, step: usize) -> Result<bool> {
        inheriting::is_converged(view, step).await
    }

    async fn left(self, server: &VaultServer, view: &View) -> Result<Value> {
        inheriting::vault_state(server, view).await
    }
}

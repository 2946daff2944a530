//! Lives of objects that ask for a push, for the tests that crash the operator in each of them.

use konverge_testkit_stores::VaultServer;
use serde_json::Value;

use crate::stage::{Result, View};

/// The steps of a person, and their results.
pub(crate) trait Life: Copy + Sync {
    /// In lower case, with dashes.
    const NAME: &str;
    /// How many steps there are.
    const STEPS: usize;
    /// More flags for the operator. With some, it has an installation of its own.
    const FLAGS: &[&str] = &[];
    /// The number of runs at the same time, each in a namespace of its own.
    const AT_ONCE: usize = 3;
    /// Takes a step.
    fn change(self, view: &View, step: usize) -> impl Future<Output = Result<()>> + Send;
    /// Whether the operator has done what that asks for.
    fn is_converged(self, view: &View, step: usize) -> impl Future<Output = Result<bool>> + Send;
    /// The final state in Vault.
    fn left(self, server: &VaultServer, view: &View) -> impl Future<Output = Result<Value>> + Send;
}

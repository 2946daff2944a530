//! `VaultRollout`, the resource for several workloads or several secrets.
//!
//! It requests the same as a [`VaultSyncStatus`](crate::vault_sync_status), by the same code. The schema keeps out most invalid specs. An older
//! definition may have let one in: the operator reads it as far as possible, or reports it.

mod resource;
mod schema;
mod spelling;

pub use self::{
    resource::{TargetSpec, VaultRollout, VaultRolloutSpec, VaultSecretSpec},
    schema::definition,
    spelling::shown,
};

//! `VaultRollout`, the spelling for those who have more than one workload or more than one secret.
//!
//! It asks for the same as a [`VaultSyncStatus`](crate::vault_sync_status), by the same code. What the schema refuses never gets here; what an
//! older definition let in is understood as far as it goes, or said to be wrong.

mod resource;
mod schema;
mod spelling;

pub use self::{
    resource::{SecretSpec, TargetSpec, VaultRollout, VaultRolloutSpec},
    schema::definition,
    spelling::shown,
};

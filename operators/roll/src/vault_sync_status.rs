//! `VaultSyncStatus`, the resource of AA047267/vault-kubernetes-operator, as its users know it.
//!
//! It takes what the original takes, and writes the status in the same place. New fields are optional.

mod resource;
mod schema;
mod spelling;

pub use self::{
    resource::{VaultSyncStatus, VaultSyncStatusSpec},
    schema::definition,
    spelling::{KOPF_FINALIZER, KOPF_PREFIX, shown},
};

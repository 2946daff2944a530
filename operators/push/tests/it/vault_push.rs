//! The custom resource, from its schema to what is in Vault.

mod choosing;
pub(crate) mod merging;
mod schema;
mod telling;

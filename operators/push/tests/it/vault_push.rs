//! The custom resource, from its schema to what is in Vault.

mod choosing;
mod merging;
mod schema;
mod telling;

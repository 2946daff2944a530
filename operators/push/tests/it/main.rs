//! The operator between a real API server and a real Vault.

mod clearing;
mod following;
mod outages;
mod owning;
mod world;

//! The zopp server: keeps end-to-end encrypted secrets, decides who may do what, and tells clients of changes.
//!
//! It never sees a value, only ciphertexts, wrapped keys and readable names. A call goes
//! `service` (which handler, what goes on record) → `auth` (who signed it) → `call` (which workspace, project, environment; which role) →
//! `handlers` (the deed, one file per noun) → [`store`] (one transaction with its audit row) → `events` (watchers are told).
//!
//! Read in this order: [`rbac`] (the decisions, pure), [`store`] (all SQL), `auth`, `call`, `handlers`, [`serve`] (listeners, TLS,
//! shutdown), [`args`] and [`mod@run`] (the command line). [`serve::Server`] is the whole server for embedding and tests.

pub mod address;
pub mod admin;
pub mod args;
pub mod audit;
mod auth;
mod call;
mod clock;
pub mod doctor;
mod events;
mod guesses;
mod handlers;
mod identity_service;
mod limit_hits;
pub mod limits;
mod metrics;
mod own_service;
pub mod policy;
pub mod rbac;
mod reading;
mod rechecks;
mod revocations;
pub mod run;
mod secrets_service;
pub mod serve;
mod service;
mod shares;
mod state;
mod status;
pub mod store;
mod upkeep;
mod validate;

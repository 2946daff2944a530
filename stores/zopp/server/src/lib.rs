//! The zopp server: keeps end-to-end encrypted secrets, decides who may do what, and tells clients of changes.
//!
//! It never sees a value, only ciphertexts, wrapped keys and readable names. A call goes through `service`, `auth`, `call`, `handlers`,
//! [`store`] and `events`, in this order. The service chooses the handler and the entry in the audit log. Then `auth` finds the signer,
//! and `call` the place and the signer's role. The handlers have one file per noun. The store commits one transaction with its audit row,
//! and `events` notify the watchers.
//!
//! Read in this order: [`rbac`] (the decisions, pure), [`store`] (all SQL), `auth`, `call`, `handlers`, [`serve`] (listeners, TLS,
//! shutdown), [`args`] and [`mod@run`] (the command line). [`serve::Server`] is the whole server for embedding and tests.

pub mod address;
pub mod admin;
pub mod allocator;
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
mod memory;
pub mod metrics;
mod own_service;
mod pieces;
mod place;
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

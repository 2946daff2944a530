//! Push: Kubernetes Secrets into Vault and OpenBao, as annotations on workloads and Secrets ask for.
//!
//! ```text
//! Secrets, workloads (metadata and names of Secrets) ──watch──▶ bindings ──wake──▶ queue
//!                                                                                    │
//!                    Vault ◀──check-and-set── reconcile: observe ▶ plan ▶ write ▶ report
//! ```
//!
//! Read in this order: [`annotations`], what an object asks for; [`boundaries`], whether it may; [`object`], which objects there
//! are; [`bindings`] and [`watch`](mod@watch), how that becomes known; [`desired`] and [`plan`], the decisions, without IO; [`record`],
//! what is remembered on the object; [`reconcile`], the way through; [`config`] and [`run`](mod@run), the program.

pub mod annotations;
pub mod bindings;
pub mod boundaries;
pub mod config;
pub mod desired;
mod drain;
pub mod ledger;
pub mod messages;
pub mod metrics;
pub mod object;
pub mod orphans;
pub mod plan;
mod reachability;
pub mod reasons;
pub mod reconcile;
pub mod record;
pub mod run;
pub mod runtime_info;
pub mod store;
pub mod vault_environment;
pub mod watch;

pub use run::run;

//! Push: Kubernetes Secrets into Vault and OpenBao, as annotations on workloads and Secrets, or a `VaultPush`, ask for.
//!
//! ```text
//! Secrets, workloads (metadata and names of Secrets) ──watch──▶ bindings ──wake──▶ queue
//!                                                                                    │
//!                    Vault ◀──check-and-set── reconcile: observe ▶ plan ▶ write ▶ report
//! ```
//!
//! Read in this order: [`spec`], the request of an object, and [`annotations`] and [`vault_push`], its two sources; [`konverge_vault::boundaries`],
//! whether it may; [`object`], which objects there are; [`bindings`] and [`watch`](mod@watch), how that becomes known; [`desired`],
//! [`composition`], [`plan`] and [`merge`], the decisions, without IO; [`record`], what is remembered on the object, and [`journal`], what
//! stands in for it where many are written for the first time; [`secrets`] and [`prefetch`], how Secrets are read, and how many of them at
//! once; [`reconcile`], the way through; [`config`] and [`run`](mod@run), the program, and [`job`], the same as one of several
//! in a process; [`inspect`], what the plugin of kubectl tells.

pub mod annotations;
pub mod bindings;
pub mod cluster_identity;
pub mod composition;
pub mod config;
pub mod content;
pub mod desired;
mod digest;
mod drain;
pub mod error;
pub mod inspect;
pub mod job;
pub mod journal;
pub mod ledger;
pub mod merge;
pub mod messages;
pub mod metrics;
pub mod object;
pub mod orphans;
pub mod plan;
pub mod policy;
pub mod prefetch;
mod reachability;
pub mod reasons;
pub mod reconcile;
pub mod record;
pub mod reference;
pub mod refusal;
pub mod run;
pub mod runtime_info;
pub mod secrets;
pub mod spec;
pub mod store;
pub mod template;
pub mod vault_push;
pub mod watch;

pub use run::run;

//! Push: Kubernetes Secrets into Vault and OpenBao, as annotations on workloads and Secrets, or a `VaultPush`, request.
//!
//! ```text
//! Secrets, workloads (metadata and names of Secrets) ──watch──▶ bindings ──wake──▶ queue
//!                                                                                    │
//!                    Vault ◀──check-and-set── reconcile: observe ▶ plan ▶ write ▶ report
//! ```
//!
//! Reading order:
//!
//! - [`spec`]: the request of an object, with its two sources, [`annotations`] and [`vault_push`].
//!
//! - [`object`], [`bindings`] and [`watch`](mod@watch): the objects with a request, and how they become known.
//!
//! - [`konverge_vault::boundaries`]: the paths that an object may write.
//!
//! - [`desired`], [`composition`], [`content`], [`plan`] and [`merge`]: the decisions, without IO.
//!
//! - [`record`] and [`ledger`]: the record on the object. [`journal`] stands in for it where many objects are written for the first time.
//!
//! - [`secrets`] and [`prefetch`]: how Secrets are read, and how many of them at once.
//!
//! - [`reconcile`]: one run. [`orphans`]: content that a deleted object left behind. [`deletions`]: the guard against too many deletions.
//!
//! - [`config`] and [`run`](mod@run): the program. [`job`]: push as one of several jobs in a process.
//!
//! - [`plugin`]: the verbs of the plugin of kubectl.

pub mod annotations;
pub mod bindings;
pub mod composition;
pub mod config;
pub mod content;
pub mod deletions;
pub mod desired;
mod drain;
pub mod error;
pub mod journal;
pub mod ledger;
pub mod merge;
pub mod messages;
pub mod metrics;
pub mod migrate;
pub mod object;
pub mod orphans;
pub mod plan;
pub mod plugin;
pub mod prefetch;
pub mod reasons;
pub mod reconcile;
pub mod record;
pub mod run;
pub mod runtime_info;
mod search;
pub mod secrets;
pub mod spec;
pub mod store;
pub mod vault_push;
pub mod watch;

use konverge_jobs::Job;

pub use run::run;

/// Push as one of several jobs in a process.
pub fn job() -> Job {
    Job::new("push", "Secrets into Vault and OpenBao, as vault-sync-operator does it", run::job)
}

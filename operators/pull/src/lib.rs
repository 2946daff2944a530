//! Pull: contents of zopp and Vault into Kubernetes Secrets that are annotated for it.
//!
//! ```text
//! zopp ───stream, poll──▶ ┐
//! Vault ──poll──────────▶ ┴ hub ──wake──▶ queue ──▶ reconcile: observe ▶ plan ▶ apply ▶ report
//!                                           ▲
//! Secrets (metadata) ──watch──▶ bindings ───┘
//! ```
//!
//! Read in this order:
//!
//! - [`annotations`] and [`allow`]: the request of a Secret, and whether it is permitted;
//!
//! - [`watch`] and [`bindings`]: the event handler for Secrets, and the bindings that it keeps;
//!
//! - [`source`]: the interface of a store, and [`hub`]: one subscription for each content;
//!
//! - [`zopp`] and [`vault`]: the stores;
//!
//! - [`plan`]: the decision, without IO;
//!
//! - [`reconcile`]: one run, from observing to reporting;
//!
//! - [`reasons`], [`messages`] and [`metrics`]: the reports;
//!
//! - [`config`], [`run`](mod@run) and [`job`]: the program, alone and as one job of several in a process;
//!
//! - [`plugin`]: the plugin of kubectl.
//!
//! # Guarantees
//! - A Secret that is not annotated is never read, and nothing about it is kept.
//! - No failure and no empty answer takes a key away. A content without keys takes keys away only if two separate reads agree.
//! - Values are held while they are written, and wiped then.
//! - One writer per Secret, and every write is safe to repeat.

pub mod allow;
pub mod annotations;
pub mod bindings;
pub mod config;
pub mod hub;
pub mod messages;
pub mod metrics;
pub mod migrate;
pub mod plan;
pub mod plugin;
pub mod reasons;
pub mod reconcile;
pub mod run;
pub mod source;
mod unsupported;
pub mod vault;
pub mod watch;
pub mod zopp;

use konverge_jobs::Job;

pub use run::run;

/// Pull as one of several jobs in a process.
pub fn job() -> Job {
    Job::new(
        "pull",
        "environments of zopp and secrets in Vault into annotated Secrets, as zopp-operator does it",
        run::job,
    )
}

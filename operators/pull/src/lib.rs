//! Pull: zopp environments into Kubernetes Secrets that are annotated for it.
//!
//! ```text
//! zopp ──stream, poll──▶ hub ──wake──▶ queue ──▶ reconcile: observe ▶ plan ▶ apply ▶ report
//!                                        ▲
//! Secrets (metadata) ──watch──▶ bindings ┘
//! ```
//!
//! Read in this order:
//!
//! - [`annotations`] and [`allow`]: the request of a Secret, and whether it is permitted;
//!
//! - [`watch`] and [`bindings`]: the event handler for Secrets, and the bindings that it keeps;
//!
//! - [`hub`]: one subscription for each environment;
//!
//! - [`record`] and [`memory`]: the accepted state of zopp, kept across restarts;
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
//! - No failure and no empty answer takes a key away. An environment without keys takes keys away only if two separate reads agree.
//! - Values are held while they are written, and wiped then.
//! - One writer per Secret, and every write is safe to repeat.

pub mod allow;
pub mod annotations;
pub mod bindings;
pub mod config;
pub mod hub;
pub mod memory;
pub mod messages;
pub mod metrics;
pub mod migrate;
pub mod plan;
pub mod plugin;
pub mod reasons;
pub mod reconcile;
pub mod record;
pub mod run;
mod unsupported;
pub mod watch;

use konverge_jobs::Job;

pub use run::run;

/// Pull as one of several jobs in a process.
pub fn job() -> Job {
    Job::new("pull", "zopp environments into annotated Secrets, as zopp-operator does it", run::job)
}

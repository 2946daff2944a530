//! Pull: contents of zopp and Vault into Kubernetes Secrets that request it by annotations, or that custom resources have made.
//!
//! ```text
//! zopp ───stream, poll──▶ ┐
//! Vault ──poll──────────▶ ┴ hub ──wake──▶ queue ──▶ reconcile: observe ▶ plan ▶ apply ▶ report
//!                                           ▲
//! Secrets (metadata) ──watch──▶ bindings ───┤
//! SecretPull, ZoppSecretSync ───watch───────┘
//! ```
//!
//! Read in this order:
//!
//! - [`wanted`] and [`select`]: what a Secret is to hold, from [`annotations`] or [`objects`], and [`allow`]: whether it is permitted;
//!
//! - [`watch`] and [`bindings`]: the event handler for Secrets, and the bindings that it keeps;
//!
//! - [`source`]: the interface of a store, and [`hub`]: one subscription for each content;
//!
//! - [`zopp`] and [`vault`]: the stores, and [`connect`]: those that custom resources connect;
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
//! - A Secret that nobody requests is never read, and nothing about it is kept.
//! - A Secret is created only for a custom resource. One that somebody else made is filled only if it is annotated, or to be adopted.
//! - No failure and no empty answer takes a key away. A content without keys takes keys away only if two separate reads agree.
//! - Values are held while they are written, and wiped then.
//! - One writer per Secret, and every write is safe to repeat.

pub mod allow;
pub mod annotations;
pub mod bindings;
pub mod config;
pub mod connect;
pub mod hub;
pub mod messages;
pub mod metrics;
pub mod migrate;
pub mod objects;
pub mod plan;
pub mod plugin;
pub mod reasons;
pub mod reconcile;
pub mod record;
pub mod run;
pub mod select;
pub mod source;
pub mod template;
pub mod vault;
pub mod wakes;
pub mod wanted;
pub mod watch;
pub mod zopp;

use konverge_jobs::Job;

pub use run::run;

/// Pull as one of several jobs in a process.
pub fn job() -> Job {
    Job::new("pull", "environments of zopp and secrets in Vault into Secrets, as zopp-operator does it", run::job)
}

//! Manage: openZro custom resources to the openZro management API.
//!
//! ```text
//! OZGroup, OZPolicy, …   (v1)      ─┐                                        one list per collection
//! Group, SetupKey, …     (v1alpha1) ─┴▶ control: lower ▶ resolve ▶ apply ▶ Collections ──▶ Account ──▶ management API
//! ```
//!
//! Read in this order:
//!
//! - [`api`]: the custom resources of both versions;
//!
//! - [`annotations`]: all annotations, and what may happen to items that others made;
//!
//! - [`remote`]: the items on the server, and how they are compared;
//!
//! - [`control`]: one controller per kind;
//!
//! - [`expose`] and [`webhook`]: exposed Services and the Gateway API, sidecars and protected groups;
//!
//! - [`account`] and [`reasons`]: the client, what its errors mean, and every reason of an event or a condition;
//!
//! - [`config`], [`program`] and [`job`]: the program, alone and as one job of several in a process;
//!
//! - [`plugin`]: the answers of the kubectl plugin.
//!
//! # Guarantees
//! - Items that people made in openZro are never emptied, taken over without a word, or deleted with an object.
//! - A write changes the fields that an object decides, and keeps all others. An item in the desired state is not
//!   written.
//! - No request has an id that could not be resolved.
//! - No failure, empty answer or missing object deletes anything.

pub mod account;
pub mod annotations;
pub mod api;
pub mod collections;
pub mod config;
mod config_map;
pub mod control;
pub mod deletions;
pub mod expose;
pub mod left_behind;
pub mod metrics;
pub mod plugin;
pub mod program;
pub mod reasons;
pub mod remote;
pub mod settings;
mod watching;
pub mod webhook;

use konverge_jobs::Job;

pub use program::run;

/// Manage as one of several jobs in a process.
pub fn job() -> Job {
    Job::new("manage", "openZro as custom resources say, as openzro-operator does it", program::job)
}

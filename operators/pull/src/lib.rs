//! Pull: zopp environments into Kubernetes Secrets, as annotations on the Secrets ask for.
//!
//! ```text
//! zopp ──stream, poll──▶ hub ──wake──▶ queue ──▶ reconcile: observe ▶ plan ▶ apply ▶ report
//!                                        ▲
//! Secrets (metadata) ──watch──▶ bindings ┘
//! ```
//!
//! Read in this order: [`annotations`] and [`allow`], what a Secret asks for and whether it may; [`watch`] and [`bindings`], how
//! that becomes known; [`hub`], one subscription for each environment; [`plan`], the decision, without IO; [`reconcile`], the way
//! through; [`reasons`], [`messages`] and [`metrics`], what is told about it; [`config`] and [`run`](mod@run), the program, and
//! [`job`], the same as one of several in a process; [`inspect`], what the plugin of kubectl tells.
//!
//! # Guarantees
//! - A Secret that is not annotated is never read, and nothing about it is kept.
//! - No failure and no empty answer takes a key away; only the environment's own word, given twice if it is that all is gone.
//! - Values are held while they are written and wiped then.
//! - One writer per Secret, and every write is safe to repeat.

pub mod allow;
pub mod annotations;
pub mod bindings;
pub mod config;
pub mod hub;
pub mod inspect;
pub mod job;
pub mod messages;
pub mod metrics;
pub mod plan;
mod reachability;
pub mod reasons;
pub mod reconcile;
pub mod run;
pub mod watch;

pub use run::run;

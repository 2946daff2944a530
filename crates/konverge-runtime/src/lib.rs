//! The engine of an operator.
//!
//! Read in this order: [`manager`], what a program is made of and how it starts and stops; [`watch`], where events come from, and
//! [`Informers`], which start watches; [`cache`], what is known without asking; [`queue`], which object is next; [`controller`], who
//! works on it and what happens when that fails. Around them: [`object`], [`client`], [`container`], [`lease`], [`checks`], [`metrics`], [`http_server`], [`open_files`],
//! [`telemetry`] and [`tls`]. Controllers without a cache need [`own_writes`] and [`version`].

pub mod cache;
pub mod checks;
pub mod client;
#[cfg(feature = "cli")]
pub mod container;
pub mod controller;
#[cfg(feature = "serve")]
pub mod http_server;
mod informers;
pub mod lease;
pub mod manager;
pub mod metrics;
pub mod object;
pub mod open_files;
pub mod own_writes;
pub mod queue;
#[cfg(test)]
mod schedule;
pub mod telemetry;
#[cfg(feature = "tls")]
pub mod tls;
pub mod version;
pub mod watch;

pub use controller::{Action, Controller, Reconciler};
pub use informers::Informers;
pub use lease::LeaseOptions;
pub use manager::Manager;
#[cfg(feature = "serve")]
pub use manager::Together;
pub use metrics::Metrics;
pub use queue::{Priority, Queue, Request};
// Its type is a part of this API.
pub use tokio_util::sync::CancellationToken;

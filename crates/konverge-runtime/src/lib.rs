//! The engine of an operator.
//!
//! Begin with [`manager`], which starts and stops the parts of a program. Events come from a [`watch`], and [`Informers`] start watches. The [`cache`] knows objects
//! without a request, and the [`queue`] which object is next. The workers of a [`controller`] work on it, and decide what happens when that fails. Around them:
//! [`object`], [`client`], [`container`], [`lease`], [`checks`], [`metrics`], [`http_server`], [`open_files`], [`telemetry`] and [`tls`]. Controllers without a cache
//! need [`own_writes`] and [`version`].

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
pub use manager::ManagerGroup;
pub use metrics::Metrics;
pub use queue::{Priority, Queue, Request};
// Its type is a part of this API.
pub use tokio_util::sync::CancellationToken;

//! Things outside the cluster as streams of changes.
//!
//! Begin with [`Change`], the item of a stream, and [`Source`], which can be asked for changes. The function [`watch`]
//! asks it, and decides what happens after a failure. Then come [`Health`] and [`Metrics`] of a stream, and the
//! [`memory`] that survives a restart. The sources are [`http`], one document, also by long polls; [`sse`], a stream of
//! events; [`objects`], a bucket or folder; [`from_stream`], anything else.
//!
//! ```no_run
//! # async fn example(client: kube::Client, registry: &mut prometheus_client::registry::Registry) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use futures::StreamExt;
//! use konverge_external::{
//!     Change, Metrics, Options,
//!     http::{Endpoint, HttpSource, Token},
//!     memory::ConfigMapMemory,
//!     watch,
//! };
//!
//! let endpoint = Endpoint::new("https://config.example.com/limits.json")?.token(Token::file("/var/run/secrets/config/token"));
//! let source = HttpSource::new("limits", endpoint).content_type("application/json");
//! let options = Options::every(Duration::from_secs(30))
//!     .memory(ConfigMapMemory::new(client, "shop", "limits-seen"))
//!     .metrics(&Metrics::register(registry));
//! let (mut changes, health) = watch(source, options);
//!
//! // For the readiness checks of the process.
//! let check = health.readiness();
//! while let Some(change) = changes.next().await {
//!     match change {
//!         Change::Added(limits) | Change::Modified(limits) => println!("{} bytes", limits.body.len()),
//!         Change::Removed(_) => println!("gone"),
//!     }
//! }
//! # let _ = check();
//! # Ok(())
//! # }
//! ```
//!
//! A stream of changes becomes a trigger of a controller by mapping each to the keys that it concerns.
//!
//! # Guarantees
//!
//! - No error, empty answer, error page or listing that broke off removes or changes anything; what is removed was
//!   missing twice in a row, or is said to be gone.
//!
//! - No error and no panic of a source ends a stream. Pauses grow with full jitter, and what the other side asks for is kept.
//!
//! - A change is reported at least once, also across restarts if there is a memory, and unchanged things are not
//!   reported again.
//!
//! - Bodies, listings, events and what waits for a slow consumer are bounded.
//!
//! - Tokens, headers, users, passwords and queries of addresses are in no error, log, metric or item; what is
//!   remembered are keyed fingerprints.
//!
//! # What it does not do
//!
//! It starts no task: a stream works while it is asked. It does not know how far the consumer is with a change that was
//! taken, so a controller looks at everything once when it starts, as controllers do. It writes nothing outside.

mod change;
mod driver;
mod error;
mod fingerprint;
mod health;
pub mod http;
pub mod memory;
mod metrics;
pub mod objects;
mod source;
pub mod sse;
mod stream;

pub use change::{Change, ChangeKind};
pub use driver::{Changes, Options, watch};
pub use error::SourceError;
pub use fingerprint::{FingerprintKey, KEY_LENGTH};
pub use health::Health;
pub use memory::{Entries, Memory, MemoryError, Remembered};
pub use metrics::Metrics;
pub use source::{Next, Polled, Source};
pub use stream::{StreamSource, from_stream};

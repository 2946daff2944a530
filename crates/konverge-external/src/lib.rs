//! Things outside the cluster as streams of changes.

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

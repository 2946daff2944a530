//! Things outside the cluster as streams of changes.

mod change;
mod error;
mod fingerprint;
pub mod memory;
mod source;

pub use change::{Change, ChangeKind};
pub use error::SourceError;
pub use fingerprint::{FingerprintKey, KEY_LENGTH};
pub use memory::{Entries, Memory, MemoryError, Remembered};
pub use source::{Next, Polled, Source};

//! The result of a look for a newer pair of certificate and key.

use jiff::Timestamp;

/// The result of a look for a newer pair, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reading {
    /// Another pair, which is served from now on and ends then.
    New(Timestamp),
    /// An unusable pair.
    Broken,
}

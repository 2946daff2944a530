//! What an error means for the one who has to decide when to try again.

use std::time::Duration;

/// When another attempt makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// It may go away by itself: try again with growing pauses.
    Transient,
    /// It stays until somebody changes something: wait for that change.
    Permanent,
    /// The other side said when to come back.
    After(Duration),
}

/// An error that knows its class and its name.
pub trait Classify {
    /// When another attempt makes sense.
    fn class(&self) -> ErrorClass;

    /// A `CamelCase` word from a fixed list, for events, conditions and metric labels. Never made from data.
    fn reason(&self) -> &'static str;
}

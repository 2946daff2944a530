//! The entries of the reference pages that a job's crate declares. `cargo xtask generate` writes the pages.

/// A reason of an event, a condition or a recorded state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// The reason itself, such as `Synced`.
    pub reason: &'static str,
    /// The objects that carry it.
    pub on: &'static str,
    /// The cause.
    pub cause: &'static str,
    /// The next step of the person who reads it; empty if there is none.
    pub next: &'static str,
}

impl Reason {
    /// Returns a reason of these objects.
    pub const fn on(on: &'static str, reason: &'static str, cause: &'static str, next: &'static str) -> Self {
        Self { reason, on, cause, next }
    }
}

/// An annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotation {
    /// The annotation itself, such as `zopp.dev/sync`.
    pub name: &'static str,
    /// The objects that may carry it.
    pub on: &'static str,
    /// The values and their effect.
    pub meaning: &'static str,
    /// The effect of a value that is not valid; empty if every value is.
    pub otherwise: &'static str,
}

//! A call to the server that failed.

use std::time::Duration;

use konverge_core::error::{Classify, ErrorClass};

/// Why a call failed, when to try again, and whether it may have taken effect all the same.
///
/// The message ends up in the status and the events of the object. It never holds a secret value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    reason: &'static str,
    class: ErrorClass,
    may_have_taken_effect: bool,
}

impl Failure {
    /// A failure of this class that had no effect on the server.
    pub fn new(class: ErrorClass, reason: &'static str, message: impl Into<String>) -> Self {
        Self { message: message.into(), reason, class, may_have_taken_effect: false }
    }

    /// The server answers nobody. The call may have taken effect. `endpoint` comes from a fixed list.
    pub fn unavailable(endpoint: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Unavailable(endpoint), reason, message).may_have_effect()
    }

    /// The server asks to come back after this pause. The call had no effect.
    pub fn after(pause: Duration, reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::After(pause), reason, message)
    }

    /// The server refuses the call until something changes there, such as a quota or a role. The call had no effect.
    pub fn refused(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Refused, reason, message)
    }

    /// The call fails until the object changes. The call had no effect.
    pub fn permanent(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Permanent, reason, message)
    }

    /// The same failure of a call that may have taken effect, such as one whose reply was lost.
    #[must_use]
    pub fn may_have_effect(self) -> Self {
        Self { may_have_taken_effect: true, ..self }
    }

    /// Whether the call may have taken effect.
    pub fn may_have_taken_effect(&self) -> bool {
        self.may_have_taken_effect
    }
}

impl Classify for Failure {
    fn class(&self) -> ErrorClass {
        self.class
    }

    fn reason(&self) -> &'static str {
        self.reason
    }
}

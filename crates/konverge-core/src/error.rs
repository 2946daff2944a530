//! The class of an error, which decides when the work is tried again.

use std::{error::Error, time::Duration};

/// When another attempt makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The error may go away by itself: try again with growing pauses.
    Transient,
    /// The error stays until the object or the operator changes: wait for that change.
    Permanent,
    /// The other side refuses the request. Somebody may mend the policy, the quota or the role at any time, and nothing tells when: try again
    /// with growing pauses that end at one to two minutes.
    Refused,
    /// The other side said when to come back.
    After(Duration),
    /// This endpoint answers nobody: one object finds out when it does again, and then all objects that wait for it are tried. The name comes
    /// from a fixed list, such as [`api_server::ENDPOINT`](crate::api_server::ENDPOINT).
    Unavailable(&'static str),
}

impl ErrorClass {
    /// The class of several errors at once, for a run of which several parts failed: as soon as one of them may go away by itself, another attempt
    /// is worth it. `None` if there are none.
    pub fn of_all(classes: impl IntoIterator<Item = Self>) -> Option<Self> {
        classes.into_iter().min_by_key(|class| match class {
            Self::Unavailable(_) => (0, Duration::ZERO),
            Self::Transient => (1, Duration::ZERO),
            Self::After(pause) => (2, *pause),
            Self::Refused => (3, Duration::ZERO),
            Self::Permanent => (4, Duration::ZERO),
        })
    }

    /// Whether no attempt succeeds before somebody changes something.
    pub fn needs_a_change(self) -> bool {
        matches!(self, Self::Permanent | Self::Refused)
    }
}

/// An error that knows its class and its name.
pub trait Classify {
    /// When another attempt makes sense.
    fn class(&self) -> ErrorClass;

    /// The pause before the next attempt, for an error whose pause was decided already. `None`, unless implemented, leaves the pause to the
    /// class. An endpoint that answers nobody ([`ErrorClass::Unavailable`]) is waited for in any case.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// A `CamelCase` word from a fixed list, for events, conditions and metric labels. Never made from data.
    fn reason(&self) -> &'static str;
}

/// Returns an error and its causes in one line. A cause that the text before already quotes is left out, because many errors quote
/// their cause. So is its form for debugging, with which an error of the API server's client ends.
pub fn in_one_line(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        line = line.replace(&format!(" ({cause:?})"), "");
        let text = cause.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        next = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Link>>);

    impl std::fmt::Display for Link {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|link| link as _)
        }
    }

    #[test]
    fn of_several_errors_the_one_that_goes_first_decides() {
        use ErrorClass::{Permanent, Refused, Transient, Unavailable};
        let after = |seconds| ErrorClass::After(Duration::from_secs(seconds));
        for (classes, expected) in [
            (vec![], None),
            (vec![Permanent, Permanent], Some(Permanent)),
            (vec![Permanent, Refused], Some(Refused)),
            (vec![Permanent, after(7), after(5), Refused], Some(after(5))),
            (vec![after(7), Transient], Some(Transient)),
            (vec![Transient, Unavailable("store"), after(1)], Some(Unavailable("store"))),
        ] {
            assert_eq!(ErrorClass::of_all(classes.clone()), expected, "{classes:?}");
        }
    }

    #[test]
    fn an_error_names_its_causes_once() {
        let error =
            Link("cannot do it: no disk", Some(Box::new(Link("no disk", Some(Box::new(Link("no power", None)))))));
        assert_eq!(in_one_line(&error), "cannot do it: no disk: no power");
        assert_eq!(in_one_line(&Link("alone", None)), "alone");
        // As the client of the API server has it.
        let cause = Link("denied: Forbidden", None);
        let error = Link(r#"ApiError: denied: Forbidden (Link("denied: Forbidden", None))"#, Some(Box::new(cause)));
        assert_eq!(in_one_line(&error), "ApiError: denied: Forbidden");
    }
}

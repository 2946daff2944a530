//! What an error means for the one who has to decide when to try again.

use std::{error::Error, time::Duration};

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

/// An error and all that caused it in one line. What the text before says already is not said again: many errors quote their cause.
pub fn in_one_line(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
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
    fn an_error_names_its_causes_once() {
        let error =
            Link("cannot do it: no disk", Some(Box::new(Link("no disk", Some(Box::new(Link("no power", None)))))));
        assert_eq!(in_one_line(&error), "cannot do it: no disk: no power");
        assert_eq!(in_one_line(&Link("alone", None)), "alone");
    }
}

//! The name of a namespace, looked at before the API server does, which answers for one that cannot exist as if it were empty: a slip would
//! go unnoticed.

use konverge_core::names::is_label;

/// A text is no name of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// There is nothing.
    #[error("it is empty; leave it out to look at all namespaces")]
    Empty,
    /// No namespace can have it.
    #[error("no namespace can have that name: up to 63 lower-case letters, digits and - inside are allowed")]
    Name,
}

/// The text, if a namespace can be called so (RFC 1123, a label).
pub fn namespace(text: &str) -> Result<String, NamespaceError> {
    if text.is_empty() {
        return Err(NamespaceError::Empty);
    }
    if is_label(text) { Ok(text.to_owned()) } else { Err(NamespaceError::Name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for text in ["team-a", "0", &"a".repeat(63)] {
            assert_eq!(namespace(text), Ok(text.to_owned()));
        }
        for text in ["", "Team", "team_a", "-a", "a-", "a,b", "a/b", &"a".repeat(64)] {
            assert!(namespace(text).is_err(), "{text}");
        }
    }
}

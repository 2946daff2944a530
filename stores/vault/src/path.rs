//! Paths as people write them, and what is refused of them. Pure.
//!
//! A path goes into an address, so what could lead elsewhere than it reads is refused here and not cleaned: cleaning is how
//! `clusters/mine/../../sys/raw` becomes somebody else's.

use std::fmt::{self, Write};

/// First segments that never hold a secret: routes that administer Vault or one of its namespaces, and the storage of a single token.
const FORBIDDEN: [&str; 4] = ["sys", "auth", "identity", "cubbyhole"];

/// Vault keeps a path as the name of a storage entry; longer ones are refused by some of its storages.
const LONGEST: usize = 1024;

/// A path as in the API, mount included: `secret/data/my-app`, without slashes around.
///
/// Guarantees: at least a mount and a name; no empty segment, no `.` and no `..`, no control character, none of `sys`, `auth`,
/// `identity` and `cubbyhole` at its beginning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretPath(String);

/// A path that is not used. Its text names the path and what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the Vault path {path:?} is refused: {why}")]
pub struct PathError {
    path: String,
    why: PathFault,
}

/// The reason why a path is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// There is nothing but a mount.
    #[error("it needs a mount and a name beneath it, such as secret/data/my-app")]
    TooShort,
    /// It is longer than Vault stores.
    #[error("it is longer than 1024 bytes")]
    TooLong,
    /// Two slashes in a row, or one at an end.
    #[error("it has an empty segment: a slash at an end or two in a row")]
    EmptySegment,
    /// `.` or `..`.
    #[error("it has a segment `.` or `..`; write the path that is meant")]
    Relative,
    /// A line break, a null, or the like.
    #[error("it has a control character")]
    Control,
    /// Its beginning belongs to Vault itself.
    #[error(
        "nothing beneath sys, auth, identity and cubbyhole is a secret to be kept, in no namespace of Vault either"
    )]
    Forbidden,
    /// On a mount of KV version 2 it is a route that is no secret.
    #[error(
        "beneath its mount of KV version 2 it begins with the name of a route; for a secret of that name write data/ before it"
    )]
    Route,
}

impl SecretPath {
    /// Takes a path as it is written; nothing of it is changed.
    pub fn parse(path: &str) -> Result<Self, PathError> {
        match fault(path) {
            Some(why) => Err(PathError::new(path, why)),
            None => Ok(Self(path.to_owned())),
        }
    }

    /// The path beneath this one.
    pub fn join(&self, name: &str) -> Result<Self, PathError> {
        Self::parse(&format!("{}/{name}", self.0))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl PathError {
    pub(crate) fn new(path: &str, why: PathFault) -> Self {
        Self { path: path.chars().take(LONGEST).collect(), why }
    }

    /// The reason.
    pub fn fault(&self) -> PathFault {
        self.why
    }
}

fn fault(path: &str) -> Option<PathFault> {
    if path.len() > LONGEST {
        return Some(PathFault::TooLong);
    }
    if let Some(fault) = segments_fault(path) {
        return Some(fault);
    }
    let (mount, _) = path.split_once('/')?;
    is_forbidden(mount).then_some(PathFault::Forbidden)
}

/// Whether the segment, where a namespace begins, leads to what is no secret. Vault's routes do not care for case here, and neither do we.
pub(crate) fn is_forbidden(segment: &str) -> bool {
    FORBIDDEN.iter().any(|forbidden| segment.eq_ignore_ascii_case(forbidden))
}

fn segments_fault(path: &str) -> Option<PathFault> {
    if path.chars().any(char::is_control) {
        return Some(PathFault::Control);
    }
    if path.is_empty() {
        return Some(PathFault::TooShort);
    }
    let mut count = 0;
    for segment in path.split('/') {
        // Blanks around do not make another segment for every server on the way.
        match segment.trim() {
            "" => return Some(PathFault::EmptySegment),
            "." | ".." => return Some(PathFault::Relative),
            _ => count += 1,
        }
    }
    (count < 2).then_some(PathFault::TooShort)
}

/// The name of a mount, of a login or of a namespace: segments without slashes around, nothing relative.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST && segments_fault(&format!("{name}/x")).is_none()
}

/// The path as it stands in an address: whatever could mean something there is escaped, so that it means nothing.
pub(crate) fn escaped(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                escaped.push(char::from(byte));
            }
            _ => {
                // Writing to a string never fails.
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_as_they_are_written() {
        use PathFault::{Control, EmptySegment, Forbidden, Relative, TooLong, TooShort};
        let long = format!("secret/{}", "x".repeat(1020));
        for (path, expected) in [
            ("secret/data/my-app", None),
            ("clusters/one/secret/data/my-app", None),
            ("kv/a b/ü/%2e%2e/...", None),
            ("system/a", None),
            ("", Some(TooShort)),
            ("secret", Some(TooShort)),
            ("/secret/a", Some(EmptySegment)),
            ("secret//a", Some(EmptySegment)),
            ("secret/a/", Some(EmptySegment)),
            ("secret/ /a", Some(EmptySegment)),
            ("clusters/mine/../../sys/raw", Some(Relative)),
            ("secret/.. /a", Some(Relative)),
            ("secret/./a", Some(Relative)),
            ("secret/a\r\nX-Vault-Token: b", Some(Control)),
            ("secret/a\0", Some(Control)),
            ("sys/policy/a", Some(Forbidden)),
            ("SYS/policy/a", Some(Forbidden)),
            ("auth/token/create", Some(Forbidden)),
            ("identity/entity", Some(Forbidden)),
            ("cubbyhole/a", Some(Forbidden)),
            (&long, Some(TooLong)),
        ] {
            assert_eq!(SecretPath::parse(path).err().map(|error| error.fault()), expected, "{path:?}");
        }
        assert_eq!(SecretPath::parse("a/b").unwrap().join("..").unwrap_err().fault(), Relative);
        assert_eq!(SecretPath::parse("a/b").unwrap().join("c").unwrap().as_str(), "a/b/c");
    }

    #[test]
    fn names_of_mounts() {
        for (name, expected) in [
            ("kubernetes", true),
            ("team/a", true),
            ("", false),
            ("/a", false),
            ("a/", false),
            ("a/../b", false),
            ("a\n", false),
        ] {
            assert_eq!(is_name(name), expected, "{name:?}");
        }
    }

    proptest! {
        /// An accepted path stays beneath its mount in an address, even after a server or a proxy has normalised the address.
        #[test]
        fn an_address_holds_exactly_the_path(path in "[a-c./% \\\\?#é\u{1}]{1,12}") {
            let path = format!("kv/{path}");
            if let Ok(path) = SecretPath::parse(&path) {
                let url = url::Url::parse(&format!("http://vault/v1/{}", escaped(path.as_str()))).unwrap();
                prop_assert!(url.query().is_none() && url.fragment().is_none());
                let expected = path.as_str().split('/').count() + 1;
                let segments: Vec<_> = url.path_segments().unwrap().collect();
                prop_assert_eq!(segments.len(), expected, "{}", url);
                prop_assert_eq!(segments[..2].to_vec(), ["v1", "kv"]);
            }
        }
    }
}

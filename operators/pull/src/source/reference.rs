//! Names of contents in stores.

use std::{borrow::Cow, fmt, str::FromStr, sync::Arc};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Between the scheme and the path.
const SEPARATOR: &str = "://";

/// Before the number of a pinned version.
const VERSION: &str = "?version=";

/// The characters that a segment has only encoded.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'/').add(b'?').add(b'#').add(b'"').add(b'<').add(b'>');

/// A content of a store, such as `zopp://acme/backend/production` or `vault://secret/team-a/db?version=3`.
///
/// A name has one spelling: segments are neither empty nor relative, and no more is percent-encoded than has to be.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    text: Arc<str>,
    connection: Option<Arc<ConnectionName>>,
}

/// The name of a custom resource that is a connection to a store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionName {
    /// The namespace of a `SecretSource`. A `ClusterSecretSource` has none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ConnectionName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.namespace.is_some() { "SecretSource" } else { "ClusterSecretSource" };
        write!(formatter, "{kind}/{}", self.name)
    }
}

/// The text is no reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not of the form SCHEME://PATH, such as zopp://acme/backend/production or vault://secret/team-a/db?version=3: {fault}"
)]
pub struct ReferenceError {
    text: String,
    fault: &'static str,
}

impl Reference {
    /// Names the content with these segments.
    pub fn new<'a>(scheme: &str, segments: impl IntoIterator<Item = &'a str>) -> Self {
        let segments: Vec<Cow<'_, str>> =
            segments.into_iter().map(|segment| utf8_percent_encode(segment, ENCODED).into()).collect();
        Self { text: format!("{scheme}{SEPARATOR}{}", segments.join("/")).into(), connection: None }
    }

    /// Returns the same name in the store at the end of this connection.
    #[must_use]
    pub fn through(self, connection: ConnectionName) -> Self {
        Self { connection: Some(Arc::new(connection)), ..self }
    }

    /// Returns the connection to the store. `None` is the connection of the operator's settings.
    pub fn connection(&self) -> Option<&ConnectionName> {
        self.connection.as_deref()
    }

    /// Returns the scheme, which names the store.
    pub fn scheme(&self) -> &str {
        self.parts().0
    }

    /// Returns the segments of the path, decoded.
    pub fn segments(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.parts().1.split('/').map(|segment| percent_decode_str(segment).decode_utf8_lossy())
    }

    /// Returns the pinned version.
    pub fn version(&self) -> Option<u64> {
        self.parts().2.and_then(|version| version.parse().ok())
    }

    fn parts(&self) -> (&str, &str, Option<&str>) {
        let (scheme, rest) = self.text.split_once(SEPARATOR).unwrap_or_default();
        let (path, version) = rest.split_once(VERSION).map_or((rest, None), |(path, version)| (path, Some(version)));
        (scheme, path, version)
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let refused = |fault| ReferenceError { text: text.to_owned(), fault };
        let (scheme, rest) = text.split_once(SEPARATOR).ok_or_else(|| refused("it has no ://"))?;
        if scheme.is_empty() || !scheme.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Err(refused("the scheme is not a word of lowercase letters"));
        }
        let (path, version) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let mut segments = Vec::new();
        for segment in path.split('/') {
            let decoded = percent_decode_str(segment).decode_utf8().map_err(|_| refused("it is not UTF-8"))?;
            if matches!(&*decoded, "" | "." | "..") {
                return Err(refused("a segment between slashes is empty, `.` or `..`"));
            }
            if decoded.chars().any(char::is_control) {
                return Err(refused("it has a control character"));
            }
            segments.push(decoded);
        }
        let reference = Self::new(scheme, segments.iter().map(AsRef::as_ref));
        let Some(query) = version else { return Ok(reference) };
        let version = query.strip_prefix("version=").and_then(|number| number.parse::<u64>().ok());
        let version = version.filter(|number| *number > 0);
        let version = version.ok_or_else(|| refused("behind ? there is no version=NUMBER with a number above 0"))?;
        Ok(Self { text: format!("{reference}{VERSION}{version}").into(), ..reference })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)?;
        self.connection.as_ref().map_or(Ok(()), |connection| write!(formatter, " through {connection}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reference_names_the_store_the_path_and_the_version() {
        for (text, scheme, segments, version) in [
            ("zopp://acme/backend/production", "zopp", &["acme", "backend", "production"][..], None),
            ("vault://secret/team-a/db?version=3", "vault", &["secret", "team-a", "db"], Some(3)),
            ("zopp://a%2Fb/c%20d/100%25", "zopp", &["a/b", "c d", "100%"], None),
        ] {
            let reference: Reference = text.parse().unwrap();
            let found: Vec<_> = reference.segments().collect();
            assert_eq!(
                (reference.scheme(), &found[..], reference.version()),
                (scheme, &segments.iter().map(|text| Cow::Borrowed(*text)).collect::<Vec<_>>()[..], version),
                "{text}"
            );
            assert_eq!(reference.to_string(), text);
        }
    }

    #[test]
    fn the_same_path_through_another_connection_is_another_content() {
        let direct: Reference = "vault://secret/db?version=3".parse().unwrap();
        let through = |namespace: Option<&str>| {
            direct.clone().through(ConnectionName { namespace: namespace.map(str::to_owned), name: "main".to_owned() })
        };
        let all = [direct.clone(), through(Some("a")), through(Some("b")), through(None)];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), 4);
        assert!(all.iter().all(|reference| reference.version() == Some(3) && reference.scheme() == "vault"));
        assert_eq!(all[1].to_string(), "vault://secret/db?version=3 through SecretSource/main");
        assert_eq!(all[3].to_string(), "vault://secret/db?version=3 through ClusterSecretSource/main");
    }

    #[test]
    fn what_could_lead_elsewhere_than_it_reads_is_refused() {
        for text in [
            "",
            "secret/db",
            "vault:secret/db",
            "://secret/db",
            "Vault://secret/db",
            "vault://",
            "vault:///db",
            "vault://secret//db",
            "vault://secret/db/",
            "vault://secret/../sys/raw",
            "vault://secret/%2e%2e/db",
            "vault://secret/%0a",
            "vault://secret/%ff",
            "vault://secret/db?version=0",
            "vault://secret/db?version=-1",
            "vault://secret/db?version=latest",
            "vault://secret/db?version=1&version=2",
            "vault://secret/db?wrap_ttl=1h",
            "vault://secret/db?",
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_name_reads_back_and_no_two_names_share_a_reference(one in "[^/\\pC]{1,8}", other in "[ -~]{1,8}") {
            prop_assume!(!matches!(one.as_str(), "." | "..") && !matches!(other.as_str(), "." | ".."));
            let reference = Reference::new("zopp", [one.as_str(), other.as_str()]);
            prop_assert_eq!(reference.segments().collect::<Vec<_>>(), [one.as_str(), other.as_str()]);
            prop_assert_eq!(reference.to_string().parse::<Reference>().unwrap(), reference);
        }
    }
}

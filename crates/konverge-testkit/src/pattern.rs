//! Names with a star in them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A text in which `*` stands for any characters but `/`, also for none. All else stands for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// Whether the whole text fits.
    pub fn matches(&self, text: &str) -> bool {
        let mut pieces = self.0.split('*');
        let first = pieces.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else { return false };
        let mut pieces: Vec<&str> = pieces.collect();
        let Some(last) = pieces.pop() else { return rest.is_empty() };
        // The leftmost place is the best one for each piece between stars; only the last piece has to end the text.
        for piece in pieces {
            let Some(at) = rest.find(piece) else { return false };
            if rest[..at].contains('/') {
                return false;
            }
            rest = &rest[at + piece.len()..];
        }
        rest.strip_suffix(last).is_some_and(|skipped| !skipped.contains('/'))
    }
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Pattern {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn stars() {
        for (pattern, text, fits) in [
            ("shop", "shop", true),
            ("shop", "shop-1", false),
            ("shop", "", false),
            ("*", "", true),
            ("*", "anything", true),
            ("*", "a/b", false),
            ("shop-*", "shop-1", true),
            ("shop-*", "my-shop-1", false),
            ("*-tls", "web-tls", true),
            ("*-tls", "web-tls-old", false),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1c", false),
            ("ab*ba", "aba", false),
            ("/api/v1/namespaces/*/configmaps/*", "/api/v1/namespaces/shop/configmaps/a", true),
            ("/api/v1/namespaces/*", "/api/v1/namespaces/shop/configmaps", false),
            ("/api/v1/*/shop/*/a", "/api/v1/namespaces/shop/configmaps/a", true),
        ] {
            assert_eq!(Pattern::from(pattern).matches(text), fits, "{pattern} on {text}");
        }
    }
}

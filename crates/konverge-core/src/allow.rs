//! Rules for the names outside the cluster that the objects of a namespace may use: `NAMESPACE=PATTERN`. Pure.

use std::{error, fmt, str::FromStr};

/// The placeholder for the namespace of the object in a pattern.
pub const NAMESPACE: &str = "{namespace}";

/// One permission: `<namespace>=<pattern>`, where `*` matches any run of characters. In the pattern, `{namespace}` is the namespace of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    namespace: String,
    names: String,
}

/// The text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError {
    text: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not of the form <namespace>=<pattern>, such as team-a=db-admins or *={{namespace}}/*",
            self.text
        )
    }
}

impl error::Error for RuleError {}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let error = || RuleError { text: text.to_owned() };
        let (namespace, names) = text.split_once('=').ok_or_else(error)?;
        // A misspelt placeholder would silently permit nothing.
        let is_valid = ![namespace, names].iter().any(|part| part.trim().is_empty())
            && !namespace.contains(['{', '}'])
            && !names.replace(NAMESPACE, "").contains(['{', '}']);
        is_valid.then(|| Self { namespace: namespace.to_owned(), names: names.to_owned() }).ok_or_else(error)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.namespace, self.names)
    }
}

impl Rule {
    /// Returns the pattern as the rule has it, with the placeholder.
    pub fn pattern(&self) -> &str {
        &self.names
    }

    /// Returns the names that this rule permits in a namespace. Returns `None` if the rule does not apply to it.
    pub fn names(&self, namespace: &str) -> Option<Pattern> {
        // The name of a namespace holds no `*`.
        matches(&self.namespace, namespace).then(|| Pattern::new(self.names.replace(NAMESPACE, namespace)))
    }
}

/// The names that a rule permits in one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// Whether the text and the names are labels with dots between them.
    is_of_labels: bool,
}

impl Pattern {
    /// Creates a pattern, in which `*` matches any run of characters.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_of_labels: false }
    }

    /// Creates a pattern for labels with dots between them, such as those of a DNS name. `*` matches any run of characters of one label.
    pub fn of_labels(text: impl Into<String>) -> Self {
        Self { is_of_labels: true, ..Self::new(text) }
    }

    /// Returns the patterns of the parts of a name, in which `*` matches no separator.
    pub fn split(&self, separator: char) -> impl Iterator<Item = Self> {
        self.text.split(separator).map(Self::new)
    }

    /// Returns `true` if the pattern matches the whole name.
    pub fn matches(&self, name: &str) -> bool {
        if !self.is_of_labels {
            return matches(&self.text, name);
        }
        let (texts, labels) = (self.text.split('.'), name.split('.'));
        texts.clone().count() == labels.clone().count() && texts.zip(labels).all(|(text, label)| matches(text, label))
    }
}

/// Returns `true` if the pattern matches the text. `*` matches any run of characters, also an empty one. The time is linear in the text for each star.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        // The earliest place leaves the most for what follows.
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*", "abc", true),
            ("a*", "ba", false),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("ab*ba", "aba", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXc", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_star_of_a_pattern_of_labels_stays_within_its_label() {
        for (pattern, name, expected) in [
            ("*.shop", "web.shop", true),
            ("*.shop", "web.team", false),
            ("*.shop", "shop", false),
            ("*.shop", "a.web.shop", false),
            ("*.shop", "web.shop.team", false),
            ("w*.shop", "web.shop", true),
        ] {
            assert_eq!(Pattern::of_labels(pattern).matches(name), expected, "{pattern} on {name}");
        }
    }

    #[test]
    fn a_rule_permits_names_to_the_namespaces_before_its_equals_sign() {
        for (rule, namespace, name, expected) in [
            ("team-a=db-admins", "team-a", "db-admins", true),
            ("team-a=db-admins", "team-b", "db-admins", false),
            ("*={namespace}/*", "team", "team/db", true),
            ("*={namespace}/*", "team", "team-a/db", false),
            ("team-*=*", "team-b", "a=b", true),
        ] {
            let names = rule.parse::<Rule>().unwrap().names(namespace);
            assert_eq!(names.is_some_and(|names| names.matches(name)), expected, "{rule} {namespace} {name}");
        }
        for text in ["", "a", "a=", "=b", " =b", "{namespace}=b", "*=b/{name}", "*={namespace/d", "*=}b"] {
            assert!(text.parse::<Rule>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_text_matches_any_pattern_made_by_cutting_pieces_out(text in "[ab]{0,8}", from in 0..9_usize, to in 0..9_usize) {
            let (from, to) = (from.min(text.len()), to.min(text.len()));
            let (from, to) = (from.min(to), from.max(to));
            let pattern = format!("{}*{}", &text[..from], &text[to..]);
            prop_assert!(matches(&pattern, &text), "{} on {}", pattern, text);
        }
    }
}

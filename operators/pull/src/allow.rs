//! Which namespaces may pull which contents.
//!
//! Without rules for zopp, anybody who may annotate a Secret can read every environment that the operator's principal can, as with the original. From any
//! other store, a Secret gets nothing without a rule.

use std::{fmt, str::FromStr};

use konverge_core::allow;

use crate::{source::Reference, zopp};

/// Between the scheme and the path.
const SEPARATOR: &str = "://";

/// One permission: `<namespace>=<workspace>/<project>/<environment>` for zopp and `<namespace>=<scheme>://<path>` for any store. `*` matches any run of
/// characters in one part of the path. At the end of a path of another store than zopp, `*` alone matches one part or more. Behind the `=`,
/// `{namespace}` is the namespace of the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    rule: allow::Rule,
    scheme: String,
}

/// The text is not a rule.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{text:?} is not of the form <namespace>=<workspace>/<project>/<environment> or <namespace>=<scheme>://<path>, such as team-a=acme/backend/*, \
     *=acme/{{namespace}}/* or *=vault://secret/{{namespace}}/*"
)]
pub struct RuleError {
    text: String,
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let refused = || RuleError { text: text.to_owned() };
        let rule: allow::Rule = text.parse().map_err(|_| refused())?;
        let (scheme, path) = rule.pattern().split_once(SEPARATOR).unwrap_or((zopp::SCHEME, rule.pattern()));
        let parts: Vec<_> = path.split('/').collect();
        let has_parts = if scheme == zopp::SCHEME { parts.len() == 3 } else { parts.len() >= 2 };
        let is_scheme = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_lowercase());
        if !has_parts || !is_scheme || parts.iter().any(|part| part.trim().is_empty()) {
            return Err(refused());
        }
        let scheme = scheme.to_owned();
        Ok(Self { rule, scheme })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rule.fmt(f)
    }
}

impl Rule {
    /// Returns the scheme of the references that it is about.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    fn permits(&self, namespace: &str, reference: &Reference) -> bool {
        let Some(pattern) = self.rule.names(namespace) else { return false };
        // The scheme is no pattern.
        let before_path = if self.rule.pattern().contains(SEPARATOR) { 2 } else { 0 };
        let patterns: Vec<_> = pattern.split('/').skip(before_path).collect();
        let parts: Vec<_> = reference.segments().collect();
        let goes_on = self.scheme != zopp::SCHEME && self.rule.pattern().ends_with("/*");
        let fits = if goes_on { parts.len() >= patterns.len() } else { parts.len() == patterns.len() };
        fits && patterns.iter().zip(&parts).all(|(pattern, part)| pattern.matches(part))
    }
}

/// Whether any rule for the store permits it. Without rules for zopp, every environment is permitted.
pub fn is_allowed(rules: &[Rule], namespace: &str, reference: &Reference) -> bool {
    let mut rules = rules.iter().filter(|rule| rule.scheme == reference.scheme()).peekable();
    let is_open = rules.peek().is_none() && reference.scheme() == zopp::SCHEME;
    is_open || rules.any(|rule| rule.permits(namespace, reference))
}

/// Returns the name of a content as a rule has it.
pub fn name(reference: &Reference) -> String {
    let path = reference.segments().collect::<Vec<_>>().join("/");
    if reference.scheme() == zopp::SCHEME { path } else { format!("{}{SEPARATOR}{path}", reference.scheme()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_a_union_and_none_allow_all() {
        let name = "zopp://acme/backend/production".parse().unwrap();
        let rules = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Rule>>();
        for (texts, namespace, expected) in [
            (&[][..], "team-a", true),
            (&["team-a=acme/backend/production"], "team-a", true),
            (&["team-a=acme/backend/production"], "team-b", false),
            (&["team-a=acme/frontend/*", "team-*=acme/*/prod*"], "team-b", true),
            (&["*=other/*/*"], "team-a", false),
            (&["*=*/{namespace}/*"], "backend", true),
            (&["*=*/{namespace}/*"], "team-a", false),
            (&["*=acme/{namespace}-*/*"], "back", false),
            (&["*=acme/{namespace}end/*"], "back", true),
            (&["*=zopp://acme/backend/*"], "team-a", true),
            (&["*=zopp://acme/frontend/*"], "team-a", false),
            (&["*=vault://secret/*"], "team-a", true),
        ] {
            assert_eq!(is_allowed(&rules(texts), namespace, &name), expected, "{texts:?} {namespace}");
        }
    }

    #[test]
    fn another_store_needs_a_rule_of_its_own() {
        let rules = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Rule>>();
        for (texts, path, expected) in [
            (&[][..], "secret/team-a/db", false),
            (&["*=acme/backend/*"], "secret/team-a/db", false),
            (&["*=*/*/*"], "secret/team-a/db", false),
            (&["*=vault://secret/{namespace}/*"], "secret/team-a/db", true),
            (&["*=vault://secret/{namespace}/*"], "secret/team-a/db/admin?version=2", true),
            (&["*=vault://secret/{namespace}/*"], "secret/team-a", false),
            (&["*=vault://secret/{namespace}/*"], "secret/team-ab/db", false),
            (&["*=vault://secret/{namespace}/*"], "secret/team-b/team-a", false),
            (&["*=vault://secret/*/db"], "secret/x/db", true),
            (&["*=vault://secret/*/db"], "secret/x/y/db", false),
            (&["*=vault://secret/db"], "secret/db", true),
            (&["team-b=vault://secret/*"], "secret/db", false),
        ] {
            let reference = format!("vault://{path}").parse().unwrap();
            assert_eq!(is_allowed(&rules(texts), "team-a", &reference), expected, "{texts:?} {path}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "team-a",
            "team-a=",
            "team-a=acme",
            "team-a=acme/backend",
            "=acme/backend/x",
            "a=b/c/d/e",
            "a=b//d",
            "{namespace}=b/c/d",
            "*=b/{name}/d",
            "*=b/{namespace/d",
            "*=vault://secret",
            "*=vault://secret//db",
            "*=vault://",
            "*=://secret/db",
            "*={namespace}://secret/db",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text:?}");
        }
    }
}

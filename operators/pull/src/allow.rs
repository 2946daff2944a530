//! Which namespaces may pull which environments.
//!
//! Without rules, anybody who may annotate a Secret can read every environment that the operator's principal can.

use std::{fmt, str::FromStr};

use konverge_core::allow;
use konverge_zopp_client::EnvironmentName;

/// One permission: `<namespace>=<workspace>/<project>/<environment>`, where `*` matches any run of characters in one part. Behind the `=`,
/// `{namespace}` is the namespace of the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule(allow::Rule);

/// The text is not a rule.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{text:?} is not of the form <namespace>=<workspace>/<project>/<environment>, such as team-a=acme/backend/* or *=acme/{{namespace}}/*"
)]
pub struct RuleError {
    text: String,
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let has_three_parts = |rule: &allow::Rule| {
            let parts: Vec<_> = rule.pattern().split('/').collect();
            parts.len() == 3 && parts.iter().all(|part| !part.trim().is_empty())
        };
        let rule = text.parse().ok().filter(has_three_parts);
        rule.map(Self).ok_or_else(|| RuleError { text: text.to_owned() })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Rule {
    fn permits(&self, namespace: &str, name: &EnvironmentName) -> bool {
        let parts = [&name.workspace, &name.project, &name.environment];
        let permits = |names: allow::Pattern| names.split('/').zip(parts).all(|(pattern, part)| pattern.matches(part));
        self.0.names(namespace).is_some_and(permits)
    }
}

/// Whether any rule permits it; without rules everything is permitted, as it was with the original operator.
pub fn is_allowed(rules: &[Rule], namespace: &str, name: &EnvironmentName) -> bool {
    rules.is_empty() || rules.iter().any(|rule| rule.permits(namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_a_union_and_none_allow_all() {
        let name = EnvironmentName::new("acme", "backend", "production");
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
        ] {
            assert_eq!(is_allowed(&rules(texts), namespace, &name), expected, "{texts:?} {namespace}");
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
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text:?}");
        }
    }
}

//! Which namespaces may pull which environments.
//!
//! Without rules, anybody who may annotate a Secret can read every environment that the operator's principal can.

use std::{fmt, str::FromStr};

use konverge_core::allow::{NAMESPACE, matches};
use konverge_zopp_client::EnvironmentName;

/// One permission: `<namespace>=<workspace>/<project>/<environment>`, where `*` matches any run of characters. Behind the `=`, `{namespace}` is the
/// namespace of the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    namespace: String,
    workspace: String,
    project: String,
    environment: String,
}

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
        let error = || RuleError { text: text.to_owned() };
        let (namespace, path) = text.split_once('=').ok_or_else(error)?;
        let [workspace, project, environment] = path.split('/').collect::<Vec<_>>()[..] else { return Err(error()) };
        if [namespace, workspace, project, environment].iter().any(|part| part.trim().is_empty()) {
            return Err(error());
        }
        // A misspelt placeholder would permit nothing, and nobody would see why.
        if namespace.contains(['{', '}']) || path.replace(NAMESPACE, "").contains(['{', '}']) {
            return Err(error());
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            workspace: workspace.to_owned(),
            project: project.to_owned(),
            environment: environment.to_owned(),
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}/{}/{}", self.namespace, self.workspace, self.project, self.environment)
    }
}

impl Rule {
    fn permits(&self, namespace: &str, name: &EnvironmentName) -> bool {
        // The name of a namespace holds no `*`.
        let permits = |pattern: &str, text: &str| matches(&pattern.replace(NAMESPACE, namespace), text);
        matches(&self.namespace, namespace)
            && permits(&self.workspace, &name.workspace)
            && permits(&self.project, &name.project)
            && permits(&self.environment, &name.environment)
    }
}

/// Whether any rule permits it; without rules everything is permitted, as it was with the original operator.
pub fn is_allowed(rules: &[Rule], namespace: &str, name: &EnvironmentName) -> bool {
    rules.is_empty() || rules.iter().any(|rule| rule.permits(namespace, name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

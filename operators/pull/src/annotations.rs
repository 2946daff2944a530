//! The annotations that bind a Secret to an environment.

use std::collections::BTreeMap;

use konverge_zopp_client::EnvironmentName;

/// Must be `"true"` for a Secret to be synced.
pub const SYNC: &str = "zopp.dev/sync";
/// The workspace's name.
pub const WORKSPACE: &str = "zopp.dev/workspace";
/// The project's name.
pub const PROJECT: &str = "zopp.dev/project";
/// The environment's name.
pub const ENVIRONMENT: &str = "zopp.dev/environment";
/// A choice of keys, which the original announces and does not implement. This operator does not follow it either, and says so.
pub const KEYS: &str = "zopp.dev/keys";

/// The declaration of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Declaration {
    /// The Secret is not annotated: it is never read.
    NotOurs,
    /// The Secret requests a sync and does not name the environment. Its data stays as it is.
    Incomplete {
        /// The annotations that are missing or empty.
        missing: Vec<&'static str>,
    },
    /// The Secret requests this environment.
    Bound(EnvironmentName),
}

/// Reads the annotations. Values are taken as they are; a value of nothing but white space counts as empty.
pub fn declaration(annotations: &BTreeMap<String, String>) -> Declaration {
    if annotations.get(SYNC).map(String::as_str) != Some("true") {
        return Declaration::NotOurs;
    }
    let value = |key| annotations.get(key).map(String::as_str).filter(|value| !value.trim().is_empty());
    match (value(WORKSPACE), value(PROJECT), value(ENVIRONMENT)) {
        (Some(workspace), Some(project), Some(environment)) => {
            Declaration::Bound(EnvironmentName::new(workspace, project, environment))
        }
        values => {
            let named = [(WORKSPACE, values.0), (PROJECT, values.1), (ENVIRONMENT, values.2)];
            let missing = named.into_iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key).collect();
            Declaration::Incomplete { missing }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Declaration {
        declaration(&pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    const COMPLETE: [(&str, &str); 3] = [(WORKSPACE, "acme"), (PROJECT, "backend"), (ENVIRONMENT, "production")];

    #[test]
    fn only_the_word_true_makes_a_secret_ours() {
        for (sync, ours) in [("true", true), ("True", false), ("1", false), ("", false), ("false", false)] {
            let declared = read(&[&[(SYNC, sync)], COMPLETE.as_slice()].concat());
            assert_eq!(declared != Declaration::NotOurs, ours, "{sync:?}");
        }
        assert_eq!(read(&COMPLETE), Declaration::NotOurs);
    }

    #[test]
    fn a_complete_declaration_names_the_environment() {
        let declared = read(&[&[(SYNC, "true")], COMPLETE.as_slice()].concat());
        assert_eq!(declared, Declaration::Bound(EnvironmentName::new("acme", "backend", "production")));
    }

    #[test]
    fn what_is_missing_or_empty_is_named() {
        for (given, missing) in [
            (vec![], vec![WORKSPACE, PROJECT, ENVIRONMENT]),
            (vec![(WORKSPACE, "acme"), (ENVIRONMENT, "production")], vec![PROJECT]),
            (vec![(WORKSPACE, "acme"), (PROJECT, ""), (ENVIRONMENT, " \t")], vec![PROJECT, ENVIRONMENT]),
        ] {
            let declared = read(&[vec![(SYNC, "true")], given.clone()].concat());
            assert_eq!(declared, Declaration::Incomplete { missing }, "{given:?}");
        }
    }
}

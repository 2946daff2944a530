//! The annotations that bind a Secret to a content of a store.

use std::collections::BTreeMap;

use konverge_zopp_client::EnvironmentName;

use crate::{
    source::{Reference, ReferenceError},
    zopp,
};

/// The objects that may carry them.
const SECRET: &str = "Secret";

/// The effect of an annotation that is missing or empty.
const INCOMPLETE: &str = "`InvalidAnnotation`; the data stays as it is";

konverge_jobs::annotations! {
    /// `true`: the Secret is filled from its environment.
    SYNC = "zopp.dev/sync" on SECRET, otherwise: "The Secret is not watched.";
    /// Name of the workspace.
    WORKSPACE = "zopp.dev/workspace" on SECRET, otherwise: INCOMPLETE;
    /// Name of the project.
    PROJECT = "zopp.dev/project" on SECRET, otherwise: INCOMPLETE;
    /// Name of the environment.
    ENVIRONMENT = "zopp.dev/environment" on SECRET, otherwise: INCOMPLETE;
    /// Fills the Secret from this content of any store, such as `vault://secret/team-a/db` or `zopp://acme/backend/production`. `?version=3` behind a
    /// path in Vault pins a version. Instead of the annotations of zopp.
    FROM = "pull.konverge.dev/from" on SECRET, otherwise: "`InvalidAnnotation`; the data stays as it is";
    /// Announced by the original operator, for a choice of keys. Neither operator follows it: the Secret gets all keys, with an event `FeatureMissing`.
    KEYS = "zopp.dev/keys" on SECRET;
    /// Written by the operator: the authenticated record of the zopp state that it accepted. A restarted operator reads it before its first request
    /// to zopp. Do not edit it. The operator writes a removed record again.
    RECORD = "konverge.dev/zopp-record" on SECRET, otherwise: "It is ignored and written again.";
}

/// The declaration of a Secret that requests a sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Declaration {
    /// These annotations are missing or empty, so it does not name the environment. Its data stays as it is.
    Incomplete(Vec<&'static str>),
    /// The annotations cannot be used for this cause. Its data stays as it is.
    Invalid(String),
    /// The Secret requests this content.
    Bound(Reference),
}

/// Reads the annotations. `None` if the Secret requests no sync: it is never read. Values are taken as they are; a value of nothing but white space
/// counts as empty.
pub fn declaration(annotations: &BTreeMap<String, String>) -> Option<Declaration> {
    let is_synced = annotations.get(SYNC).map(String::as_str) == Some("true");
    match annotations.get(FROM) {
        None if !is_synced => return None,
        None => {}
        Some(_) if is_synced => {
            return Some(Declaration::Invalid(format!("both {FROM} and {SYNC} are set, and a Secret has one source")));
        }
        Some(from) => {
            let reference = from.trim().parse().map_or_else(
                |error: ReferenceError| Declaration::Invalid(format!("{FROM}: {error}")),
                Declaration::Bound,
            );
            return Some(reference);
        }
    }
    let value = |key| annotations.get(key).map(String::as_str).filter(|value| !value.trim().is_empty());
    let all = [WORKSPACE, PROJECT, ENVIRONMENT];
    let [Some(workspace), Some(project), Some(environment)] = all.map(value) else {
        return Some(Declaration::Incomplete(all.into_iter().filter(|key| value(key).is_none()).collect()));
    };
    Some(Declaration::Bound(zopp::reference(&EnvironmentName::new(workspace, project, environment))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Option<Declaration> {
        declaration(&pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    const COMPLETE: [(&str, &str); 3] = [(WORKSPACE, "acme"), (PROJECT, "backend"), (ENVIRONMENT, "production")];

    #[test]
    fn only_the_word_true_makes_a_secret_ours() {
        for (sync, ours) in [("true", true), ("True", false), ("1", false), ("", false), ("false", false)] {
            let declared = read(&[&[(SYNC, sync)], COMPLETE.as_slice()].concat());
            assert_eq!(declared.is_some(), ours, "{sync:?}");
        }
        assert_eq!(read(&COMPLETE), None);
    }

    #[test]
    fn a_complete_declaration_names_the_environment() {
        let declared = read(&[&[(SYNC, "true")], COMPLETE.as_slice()].concat());
        assert_eq!(declared, Some(Declaration::Bound("zopp://acme/backend/production".parse().unwrap())));
    }

    #[test]
    fn one_annotation_names_a_content_of_any_store() {
        for from in ["vault://secret/team-a/db?version=3", "zopp://acme/backend/production"] {
            assert_eq!(read(&[(FROM, from)]), Some(Declaration::Bound(from.parse().unwrap())));
        }
        for from in ["", "secret/team-a/db"] {
            let declared = read(&[(FROM, from)]);
            assert!(matches!(&declared, Some(Declaration::Invalid(cause)) if cause.contains(FROM)), "{declared:?}");
        }
        let both = read(&[&[(SYNC, "true"), (FROM, "vault://secret/db")], COMPLETE.as_slice()].concat());
        assert!(matches!(&both, Some(Declaration::Invalid(cause)) if cause.contains(SYNC)), "{both:?}");
        let off = read(&[(SYNC, "false"), (FROM, "vault://secret/db")]);
        assert!(matches!(off, Some(Declaration::Bound(_))));
    }

    #[test]
    fn what_is_missing_or_empty_is_named() {
        for (given, missing) in [
            (vec![], vec![WORKSPACE, PROJECT, ENVIRONMENT]),
            (vec![(WORKSPACE, "acme"), (ENVIRONMENT, "production")], vec![PROJECT]),
            (vec![(WORKSPACE, "acme"), (PROJECT, ""), (ENVIRONMENT, " \t")], vec![PROJECT, ENVIRONMENT]),
        ] {
            let declared = read(&[vec![(SYNC, "true")], given.clone()].concat());
            assert_eq!(declared, Some(Declaration::Incomplete(missing)), "{given:?}");
        }
    }
}

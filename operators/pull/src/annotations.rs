//! The annotations that bind a Secret to a content of a store.

use std::{collections::BTreeMap, sync::Arc};

use konverge_zopp_client::EnvironmentName;

use crate::{
    select::Selection,
    source::{Reference, ReferenceError},
    wanted::Wanted,
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
    /// The keys that the Secret gets, with commas between them, such as `DATABASE_URL, API_*`. `*` stands for any run of characters. The original operator
    /// announces it and gives all keys.
    KEYS = "zopp.dev/keys" on SECRET, otherwise: "The Secret gets all keys.";
    /// The same for either store.
    SELECTED = "pull.konverge.dev/keys" on SECRET, otherwise: "The Secret gets all keys.";
    /// `true`: where the chart's admission policy confines the operator, lets a `SecretPull` with `target.adopt` take the Secret over.
    ADOPT = "pull.konverge.dev/adopt" on SECRET, otherwise: "The policy refuses the takeover.";
    /// `true`: the Secret stays as it is.
    PAUSE = "pull.konverge.dev/pause" on SECRET, otherwise: "The Secret is not paused.";
    /// Asks the source at once and compares the Secret with it, as every change of the Secret does. A comparison that is under way answers the request,
    /// too. `kubectl konverge sync` writes the time.
    SYNC_NOW = "pull.konverge.dev/sync-now" on SECRET;
    /// Written by the operator: the authenticated record of the zopp state that it accepted. A restarted operator reads it before its first request
    /// to zopp. Do not edit it. The operator writes a removed record again.
    RECORD = "konverge.dev/zopp-record" on SECRET, otherwise: "It is ignored and written again.";
    /// Written by the operator. On a Secret that it makes for a custom resource: whose the Secret is, and which source gave which keys and which version.
    /// On an annotated Secret from Vault: the version. Do not edit it.
    TARGET_RECORD = "pull.konverge.dev/record" on SECRET,
        otherwise: "A Secret of a custom resource counts as one that somebody else made. The version counts as unknown.";
}

/// Annotations of the original operator and of the CLI that request nothing of this operator.
const OF_ZOPP: [&str; 5] =
    ["zopp.dev/managed", "zopp.dev/reload", "zopp.dev/restartedAt", "zopp.dev/synced-at", "zopp.dev/synced-by"];

/// The prefixes of the annotations that this operator reads.
const PREFIXES: [&str; 2] = ["zopp.dev/", "pull.konverge.dev/"];

/// Returns whether the original operator has created the Secret for a `ZoppSecretSync`.
pub fn zopp_managed(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get("zopp.dev/managed").is_some_and(|managed| managed == "true")
}

/// Returns whether the annotation decides what the operator does with a Secret, so that no object may have it set on the Secret that it has made.
pub fn is_reserved(name: &str) -> bool {
    let is_ours = name == RECORD || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    is_ours && !OF_ZOPP.contains(&name)
}

/// Returns the annotations with a prefix of this operator that it does not know, such as misspelt ones.
pub fn unknown(annotations: &BTreeMap<String, String>) -> Vec<String> {
    let is_known = |name: &str| ANNOTATIONS.iter().any(|known| known.name == name) || OF_ZOPP.contains(&name);
    let is_ours = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    annotations.keys().filter(|name| is_ours(name) && !is_known(name)).cloned().collect()
}

/// The declaration of a Secret that requests a sync.
#[derive(Debug, Clone, PartialEq)]
pub enum Declaration {
    /// These annotations are missing or empty, so it does not name the environment. Its data stays as it is.
    Incomplete(Vec<&'static str>),
    /// The annotations cannot be used for this cause. Its data stays as it is.
    Invalid(String),
    /// The Secret is paused. Its data stays as it is.
    Paused,
    /// This is requested, by the annotations or by a custom resource.
    Bound(Arc<Wanted>),
}

impl Declaration {
    /// Returns what is requested.
    pub fn wanted(&self) -> Option<&Arc<Wanted>> {
        match self {
            Self::Bound(wanted) => Some(wanted),
            Self::Incomplete(_) | Self::Invalid(_) | Self::Paused => None,
        }
    }
}

/// Reads the annotations. `None` if the Secret requests no sync: it is never read. Values are taken as they are; a value of nothing but white space
/// counts as empty.
pub fn declaration(annotations: &BTreeMap<String, String>) -> Option<Declaration> {
    let is_true = |name| annotations.get(name).is_some_and(|value| value == "true");
    let is_synced = is_true(SYNC);
    match annotations.get(FROM) {
        None if !is_synced => return None,
        _ if is_true(PAUSE) => return Some(Declaration::Paused),
        None => {}
        Some(_) if is_synced => {
            return Some(Declaration::Invalid(format!("both {FROM} and {SYNC} are set, and a Secret has one source")));
        }
        Some(from) => {
            let reference = from.trim().parse().map_or_else(
                |error: ReferenceError| Declaration::Invalid(format!("{FROM}: {error}")),
                |reference| bound(annotations, reference),
            );
            return Some(reference);
        }
    }
    let value = |key| annotations.get(key).map(String::as_str).filter(|value| !value.trim().is_empty());
    let all = [WORKSPACE, PROJECT, ENVIRONMENT];
    let [Some(workspace), Some(project), Some(environment)] = all.map(value) else {
        return Some(Declaration::Incomplete(all.into_iter().filter(|key| value(key).is_none()).collect()));
    };
    Some(bound(annotations, zopp::reference(&EnvironmentName::new(workspace, project, environment))))
}

/// Reads the choice of keys.
fn bound(annotations: &BTreeMap<String, String>, reference: Reference) -> Declaration {
    let keys = [SELECTED, KEYS].map(|name| annotations.get(name).map(|text| Selection::of_list(text)));
    let selection = match keys {
        [Some(selected), Some(keys)] if selected != keys => {
            return Declaration::Invalid(format!("{SELECTED} and {KEYS} are set and differ"));
        }
        [Some(selection), _] | [None, Some(selection)] => selection,
        [None, None] => Selection::default(),
    };
    Declaration::Bound(Arc::new(Wanted::annotated(reference, selection)))
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
        assert_eq!(declared, Some(all_of("zopp://acme/backend/production")));
    }

    #[test]
    fn one_annotation_names_a_content_of_any_store() {
        for from in ["vault://secret/team-a/db?version=3", "zopp://acme/backend/production"] {
            assert_eq!(read(&[(FROM, from)]), Some(all_of(from)));
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
    fn a_secret_is_paused_whatever_it_declares() {
        for (pause, expected) in [("true", true), ("false", false), ("", false)] {
            for declared in [(FROM, "vault://secret/db"), (FROM, "nothing"), (SYNC, "true")] {
                let read = read(&[declared, (PAUSE, pause)]).unwrap();
                assert_eq!(read == Declaration::Paused, expected, "{declared:?} {pause:?}");
            }
        }
        assert_eq!(read(&[(PAUSE, "true")]), None);
    }

    fn all_of(from: &str) -> Declaration {
        Declaration::Bound(Arc::new(Wanted::annotated(from.parse().unwrap(), Selection::default())))
    }

    #[test]
    fn keys_are_chosen_in_either_spelling() {
        let of = |keys: &[(&str, &str)]| read(&[&[(FROM, "vault://secret/db")], keys].concat());
        let chosen = Wanted::annotated("vault://secret/db".parse().unwrap(), Selection::of_list("A,B_*"));
        let chosen = Some(Declaration::Bound(Arc::new(chosen)));
        assert_eq!(of(&[(KEYS, "A, B_*")]), chosen);
        assert_eq!(of(&[(SELECTED, "A\nB_*")]), chosen);
        assert_eq!(of(&[(SELECTED, "A B_*"), (KEYS, "A,B_*")]), chosen);
        assert!(matches!(of(&[(SELECTED, "A"), (KEYS, "B")]), Some(Declaration::Invalid(_))));
    }

    #[test]
    fn misspelt_annotations_are_found() {
        let names = ["zopp.dev/sync", "zopp.dev/managed", "pull.konverge.dev/key", "zopp.dev/Keys", "example.io/x"];
        let annotations = names.iter().map(|&name| (name.to_owned(), String::new())).collect();
        assert_eq!(unknown(&annotations), ["pull.konverge.dev/key", "zopp.dev/Keys"]);
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

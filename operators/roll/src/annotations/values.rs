//! The grammars of annotation values.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use konverge_core::names::is_object_name;
use kube::core::Selector;

use super::{Annotations, EVERY_NAMESPACE, Invalid};
use crate::{object::SourceName, time::span};

/// The number of characters of an invalid value that a message shows.
const SHOWN: usize = 64;

pub(super) fn invalid(annotation: &'static str, value: &str, cause: impl Into<String>) -> Invalid {
    Invalid { annotation, value: value.chars().take(SHOWN).collect(), cause: cause.into() }
}

/// Reads a boolean. An annotation that is absent is `false`.
pub(super) fn boolean(annotations: &Annotations, annotation: &'static str) -> Result<bool, Invalid> {
    match annotations.get(annotation).map(String::as_str) {
        Some("true") => Ok(true),
        None | Some("false") => Ok(false),
        Some(other) => Err(invalid(annotation, other, "write \"true\" or \"false\", or leave it out")),
    }
}

/// Returns `true` if the value is exactly `true`, as other tools require. They ignore every other value.
pub(super) fn is_true(annotations: &Annotations, annotation: &str) -> bool {
    annotations.get(annotation).is_some_and(|word| word == "true")
}

pub(super) fn whole_number(annotation: &'static str, text: &str) -> Result<i32, Invalid> {
    text.trim().parse().map_err(|_| invalid(annotation, text, "write a whole number, such as 0, 1 or -1"))
}

pub(super) fn duration(annotation: &'static str, text: &str) -> Result<SignedDuration, Invalid> {
    span(text).map_err(|cause| invalid(annotation, text, cause))
}

/// Reads a list of `secret/NAME` and `configmap/NAME`, each with an optional `:KEY`.
pub(super) fn sources(annotation: &'static str, text: &str) -> Result<Vec<(SourceName, Option<String>)>, Invalid> {
    text.split(',').map(|item| source(item.trim()).map_err(|cause| invalid(annotation, text, cause))).collect()
}

fn source(item: &str) -> Result<(SourceName, Option<String>), String> {
    let expected = "write \"true\", \"false\", or a list such as secret/db,configmap/app or secret/db:password";
    let (kind, rest) = item.split_once('/').ok_or_else(|| format!("{item:?} names nothing; {expected}"))?;
    let (name, key) = rest.split_once(':').map_or((rest, None), |(name, key)| (name, Some(key)));
    let source = match kind {
        "secret" => SourceName::secret(object_name(name)?),
        "configmap" => SourceName::config_map(object_name(name)?),
        _ => return Err(format!("{kind:?} is neither secret nor configmap; {expected}")),
    };
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    match key {
        Some(key) if key.is_empty() || key.len() > 253 || !key.chars().all(is_part) => {
            Err(format!("{key:?} is no key; keys are made of letters, digits, -, _ and ."))
        }
        key => Ok((source, key.map(str::to_owned))),
    }
}

/// Reads a list of namespaces; `*` stands for all.
pub(super) fn namespaces(annotation: &'static str, text: &str) -> Result<BTreeSet<String>, Invalid> {
    if text.trim() == EVERY_NAMESPACE {
        return Ok(BTreeSet::from([EVERY_NAMESPACE.to_owned()]));
    }
    text.split(',').map(|name| object_name(name.trim()).map_err(|cause| invalid(annotation, text, cause))).collect()
}

/// Returns the name if it is a valid name of an object.
pub fn object_name(name: &str) -> Result<String, String> {
    if is_object_name(name) {
        Ok(name.to_owned())
    } else {
        Err(format!("{name:?} is no name of an object, and patterns are not understood"))
    }
}

/// Reads labels such as `a=b,c=d`, all of which an object must have.
pub(super) fn labels(annotation: &'static str, text: &str) -> Result<Selector, Invalid> {
    let pair = |item: &str| {
        let (name, value) = item.split_once('=')?;
        let (name, value) = (name.trim(), value.trim().trim_start_matches('='));
        (!name.is_empty() && !name.ends_with('!') && !value.contains([' ', '=']))
            .then(|| (name.to_owned(), value.to_owned()))
    };
    let labels: Option<BTreeMap<_, _>> = text.split(',').map(pair).collect();
    let labels = labels
        .ok_or_else(|| invalid(annotation, text, "write labels that must be there, such as app=web,tier=front"))?;
    Ok(labels.into_iter().collect())
}

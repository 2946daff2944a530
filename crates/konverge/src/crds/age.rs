//! Which of two definitions is the older one. Pure.

use std::cmp::Ordering;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use serde_json::Value;

/// Compares two versions of a program, such as `1.2.0` and `1.10.0-rc.1`, as semantic versioning does. Returns `None` if one of them is not a version.
pub(super) fn compare(one: &str, other: &str) -> Option<Ordering> {
    let (one, other) = (Version::parse(one)?, Version::parse(other)?);
    Some(one.numbers.cmp(&other.numbers).then_with(|| match (one.pre_release, other.pre_release) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(one), Some(other)) => {
            let identifiers = one.split('.').map(identifier).zip(other.split('.').map(identifier));
            let first_difference = identifiers.map(|(one, other)| one.cmp(&other)).find(|order| order.is_ne());
            first_difference.unwrap_or_else(|| one.split('.').count().cmp(&other.split('.').count()))
        }
    }))
}

struct Version<'a> {
    numbers: [u64; 3],
    pre_release: Option<&'a str>,
}

impl<'a> Version<'a> {
    /// Reads up to three numbers; those that are left out are 0.
    fn parse(text: &'a str) -> Option<Self> {
        let text = text.split('+').next().unwrap_or_default();
        let (numbers, pre_release) =
            text.split_once('-').map_or((text, None), |(numbers, pre_release)| (numbers, Some(pre_release)));
        let mut parts = numbers.split('.').map(|number| number.parse::<u64>().ok());
        let mut next = || parts.next().unwrap_or(Some(0));
        let numbers = [next()?, next()?, next()?];
        parts.next().is_none().then_some(Self { numbers, pre_release })
    }
}

/// A number sorts before a word, and numbers by their value.
fn identifier(text: &str) -> (bool, u64, &str) {
    text.parse().map_or((true, 0, text), |number| (false, number, ""))
}

/// The versions and fields that `found` declares and `wanted` does not, such as `v1.status.phase`. A field below a lost one is not named.
pub(super) fn lost(found: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Vec<String> {
    let mut lost = Vec::new();
    for version in &found.spec.versions {
        match wanted.spec.versions.iter().find(|wanted| wanted.name == version.name) {
            None => lost.push(version.name.clone()),
            Some(wanted) => compare_schemas(&version.name, &schema(version), &schema(wanted), &mut lost),
        }
    }
    lost
}

fn schema(version: &CustomResourceDefinitionVersion) -> Value {
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    // Every schema has a form in JSON.
    schema.and_then(|schema| serde_json::to_value(schema).ok()).unwrap_or_default()
}

fn compare_schemas(path: &str, found: &Value, wanted: &Value, lost: &mut Vec<String>) {
    let keeps_unknown = |of: &Value| of["x-kubernetes-preserve-unknown-fields"] == true;
    let is_open = wanted.is_null() || keeps_unknown(wanted) || wanted["additionalProperties"] == true;
    for (name, found) in found["properties"].as_object().into_iter().flatten() {
        match wanted["properties"].get(name) {
            Some(wanted) => compare_schemas(&format!("{path}.{name}"), found, wanted, lost),
            None if is_open => {}
            None => lost.push(format!("{path}.{name}")),
        }
    }
    for below in ["items", "additionalProperties"] {
        if found[below].is_object() {
            compare_schemas(path, &found[below], &wanted[below], lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_semantic_versioning() {
        let sorted = [
            "0",
            "0.1.0-alpha",
            "0.1.0-alpha.1",
            "0.1.0-alpha.beta",
            "0.1.0-rc.2",
            "0.1.0-rc.10",
            "0.1.0",
            "0.2",
            "0.10.0",
            "1",
        ];
        for (place, one) in sorted.iter().enumerate() {
            for (other_place, other) in sorted.iter().enumerate() {
                assert_eq!(compare(one, other), Some(place.cmp(&other_place)), "{one} {other}");
            }
        }
        assert_eq!(compare("1.0.0+build.7", "1.0.0"), Some(Ordering::Equal));
        for odd in ["", "one", "1.2.3.4", "1.x"] {
            assert_eq!(compare(odd, "1.0.0"), None, "{odd}");
        }
    }
}

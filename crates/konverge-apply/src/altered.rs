//! Which fields the API server stored with another value than was sent. Pure.
//!
//! A mutating policy or webhook may change what is applied. The answer to the write shows it. The answer also differs without a
//! change of meaning: the server fills in defaults, leaves out zeros, and writes quantities, durations and times in its own
//! spelling.

mod semantic_equality;

use std::{collections::BTreeSet, fmt};

use serde_json::{Map, Value};

use crate::{
    difference::joined,
    in_sync::{
        ITEM, KEYED, MEMBER, METADATA_UNOWNED, ROOT_UNOWNED, applied_fields, has_keys, is_empty, is_item, parsed,
    },
};

use self::semantic_equality::is_semantically_equal;

/// A field that the API server stored with another value than was sent. Never contains a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlteredField {
    /// The field, such as `.data.key` or `.spec.ports[0].name`.
    pub field: String,
    /// The other managers that own the field too. Admission leaves no such trace, so there are none if a policy or a webhook
    /// changed the value.
    pub managers: Vec<String>,
}

impl fmt::Display for AlteredField {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.field)?;
        match &*self.managers {
            [] => Ok(()),
            managers => write!(out, " (also managed by {})", managers.join(", ")),
        }
    }
}

/// The fields of `wanted` that are not as wanted in `answer`, the API server's answer to an apply of `wanted` by `manager`.
///
/// Only what was sent counts. Without a record of the fields of `manager`, nothing can be told.
pub(crate) fn altered(wanted: &Value, answer: &Value, manager: &str) -> Vec<AlteredField> {
    let Some(fields) = applied_fields(answer, manager, wanted.get("apiVersion"), None) else { return Vec::new() };
    let (Some(wanted), Some(stored)) = (wanted.as_object(), answer.as_object()) else { return Vec::new() };
    let mut comparison = Comparison { answer, manager, path: Vec::new(), found: Vec::new() };
    comparison.members("", wanted, stored, Some(fields), &ROOT_UNOWNED);
    let none = Map::new();
    if let Some(metadata) = part(wanted, "metadata") {
        comparison.path.push(format!("{MEMBER}metadata"));
        let (fields, stored) = (part(fields, "f:metadata"), part(stored, "metadata").unwrap_or(&none));
        comparison.members(".metadata", metadata, stored, fields, &METADATA_UNOWNED);
    }
    comparison.found
}

/// The same for a status that was applied through the subresource. `wanted` has nothing but `apiVersion`, `kind`, `metadata` and `status`.
pub(crate) fn altered_status(wanted: &Value, answer: &Value, manager: &str) -> Vec<AlteredField> {
    let fields = applied_fields(answer, manager, wanted.get("apiVersion"), Some("status"));
    let (Some(fields), Some(wanted), Some(stored)) = (fields, wanted.as_object(), answer.as_object()) else {
        return Vec::new();
    };
    let mut comparison = Comparison { answer, manager, path: Vec::new(), found: Vec::new() };
    comparison.members("", wanted, stored, Some(fields), &["apiVersion", "kind", "metadata"]);
    comparison.found
}

/// The same for a merge patch of metadata. Members that it removes are not compared.
pub(crate) fn altered_metadata(patch: &Value, answer: &Value, manager: &str) -> Vec<AlteredField> {
    let none = Map::new();
    let [sent, stored] = [patch, answer].map(|of| of.get("metadata").and_then(Value::as_object).unwrap_or(&none));
    let mut comparison = Comparison { answer, manager, path: vec![format!("{MEMBER}metadata")], found: Vec::new() };
    comparison.members(".metadata", sent, stored, None, &METADATA_UNOWNED);
    comparison.found
}

fn part<'a>(of: &'a Map<String, Value>, name: &str) -> Option<&'a Map<String, Value>> {
    of.get(name).and_then(Value::as_object)
}

struct Comparison<'a> {
    answer: &'a Value,
    manager: &'a str,
    /// Where the walk is, in the words of a set of fields.
    path: Vec<String>,
    found: Vec<AlteredField>,
}

impl Comparison<'_> {
    fn members(
        &mut self,
        place: &str,
        wanted: &Map<String, Value>,
        stored: &Map<String, Value>,
        fields: Option<&Map<String, Value>>,
        unowned: &[&str],
    ) {
        for (name, value) in wanted.iter().filter(|(name, value)| !unowned.contains(&name.as_str()) && !value.is_null())
        {
            let member = format!("{MEMBER}{name}");
            let below = fields.and_then(|fields| fields.get(&member));
            self.path.push(member);
            self.value(&joined(place, name), value, stored.get(name), below);
            self.path.pop();
        }
    }

    fn value(&mut self, place: &str, wanted: &Value, stored: Option<&Value>, fields: Option<&Value>) {
        let fields = fields.and_then(Value::as_object);
        match (wanted, stored.unwrap_or(&Value::Null)) {
            (wanted, Value::Null) if is_empty(wanted) => {}
            (Value::Object(wanted), Value::Object(stored)) => self.members(place, wanted, stored, fields, &[]),
            (Value::Array(wanted), Value::Array(stored)) => self.items(place, wanted, stored, fields),
            (wanted, stored) if is_semantically_equal(wanted, stored) => {}
            _ => self.report(place),
        }
    }

    fn items(&mut self, place: &str, wanted: &[Value], stored: &[Value], fields: Option<&Map<String, Value>>) {
        let is_merged = |name: &String| name.starts_with(KEYED) || name.starts_with(ITEM);
        let Some(fields) = fields.filter(|fields| fields.keys().any(is_merged)) else {
            // An empty list is merged with the items of others, or leaves no trace.
            if wanted.is_empty() {
                return;
            }
            if wanted.len() != stored.len() {
                return self.report(place);
            }
            for (position, (wanted, stored)) in wanted.iter().zip(stored).enumerate() {
                self.value(&format!("{place}[{position}]"), wanted, Some(stored), None);
            }
            return;
        };
        for (position, item) in wanted.iter().enumerate() {
            let place = format!("{place}[{position}]");
            let entry = fields.iter().find(|(name, _)| is_merged(name) && is_item(name, item));
            let keys = entry.and_then(|(name, _)| parsed(name, KEYED));
            let found = match &keys {
                Some(keys) => stored.iter().find(|stored| has_keys(stored, keys, false)),
                None => stored.iter().find(|stored| is_semantically_equal(item, stored)),
            };
            let (Some((name, below)), Some(found)) = (entry, found) else {
                self.report(&place);
                continue;
            };
            self.path.push(name.clone());
            self.value(&place, item, Some(found), Some(below));
            self.path.pop();
        }
    }

    fn report(&mut self, place: &str) {
        let managers = managers_of(self.answer, &self.path, self.manager);
        self.found.push(AlteredField { field: place.to_owned(), managers });
    }
}

/// The managers other than `but` that own the field at `path`, or something around it as a whole.
pub(crate) fn managers_of(object: &Value, path: &[String], but: &str) -> Vec<String> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array).map(Vec::as_slice);
    let owns = |entry: &&Value| {
        let Some(mut fields) = entry.get("fieldsV1") else { return false };
        for name in path {
            match fields.get(name) {
                Some(below) => fields = below,
                // A set of fields with nothing below it means the whole value.
                None => return fields.as_object().is_some_and(Map::is_empty),
            }
        }
        true
    };
    let name = |entry: &Value| entry.get("manager").and_then(Value::as_str).map(ToOwned::to_owned);
    let owners = entries.unwrap_or_default().iter().filter(owns).filter_map(name);
    owners.filter(|owner| owner != but).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests;

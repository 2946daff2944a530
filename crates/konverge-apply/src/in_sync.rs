//! Whether an object already is as it is wanted, decided without asking the API server.
//!
//! The API server's record of field ownership (`metadata.managedFields`) tells two things that the object alone does not. It
//! names the fields that we applied, so a field that is no longer wanted is noticed. It shows how lists are merged, so the
//! items of others and the server's defaults do not count as a difference.

use serde_json::{Map, Value};

/// Members at the top of an object that no manager owns, or that are not written by an apply of the object itself.
pub(crate) const ROOT_UNOWNED: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// Members of `metadata` that no manager owns.
pub(crate) const METADATA_UNOWNED: [&str; 9] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
];

/// The prefix of a member's name in a set of fields.
pub(crate) const MEMBER: &str = "f:";
/// The prefix of the keys of an item in a list that is merged by key.
pub(crate) const KEYED: &str = "k:";
/// The prefix of an item in a list that is a set.
pub(crate) const ITEM: &str = "v:";
/// Stands for the member or item itself.
pub(crate) const SELF: &str = ".";

/// Whether applying `desired` as `manager` would change nothing of `observed`, as far as can be told from what is observed.
///
/// Both are whole objects in JSON; `status` is left out, as another writer's. True only if `manager` has applied exactly the
/// fields of `desired`, in the same API version, and each has the wanted value; then the API server would answer with the same
/// resource version. False says nothing: without a record of our fields, or where the server has filled in parts of something
/// that is owned as a whole, it cannot be told, and asking is right.
///
/// Assumes that the server spells values as the desired object does: a quantity of `0.5` comes back as `500m` and counts as out of sync.
pub fn is_in_sync(desired: &Value, observed: &Value, manager: &str) -> bool {
    is_in_sync_of(desired, observed, manager, None)
}

/// The same for a status that is written through the subresource; `desired` has nothing but `apiVersion` and `status`.
pub(crate) fn is_status_in_sync(desired: &Value, observed: &Value, manager: &str) -> bool {
    is_in_sync_of(desired, observed, manager, Some("status"))
}

fn is_in_sync_of(desired: &Value, observed: &Value, manager: &str, subresource: Option<&str>) -> bool {
    let Some(fields) = applied_fields(observed, manager, desired.get("apiVersion"), subresource) else { return false };
    let (Some(desired), Some(observed)) = (desired.as_object(), observed.as_object()) else { return false };
    if subresource.is_some() {
        return members_in_sync(fields, desired, Some(observed), &["apiVersion", "kind", "metadata"]);
    }
    let none = Map::new();
    let metadata_fields = fields.get("f:metadata").and_then(Value::as_object).unwrap_or(&none);
    let metadata = desired.get("metadata").and_then(Value::as_object).unwrap_or(&none);
    let seen = observed.get("metadata").and_then(Value::as_object);
    members_in_sync(fields, desired, Some(observed), &ROOT_UNOWNED)
        && members_in_sync(metadata_fields, metadata, seen, &METADATA_UNOWNED)
}

/// The fields that the manager has applied in this version; nothing if there are none, or also some in another version.
pub(crate) fn applied_fields<'a>(
    observed: &'a Value,
    manager: &str,
    api_version: Option<&Value>,
    subresource: Option<&str>,
) -> Option<&'a Map<String, Value>> {
    let mut ours = applied_entries(observed, manager, subresource);
    let only = ours.next()?;
    if ours.next().is_some() || only.get("apiVersion") != api_version {
        return None;
    }
    only.get("fieldsV1")?.as_object()
}

/// The records of the fields that the manager has applied, each with its version and time.
pub(crate) fn applied_entries<'a>(
    object: &'a Value,
    manager: &str,
    subresource: Option<&str>,
) -> impl Iterator<Item = &'a Value> {
    let is =
        |entry: &Value, field: &str, text: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default() == text;
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().filter(move |entry| {
        is(entry, "manager", manager)
            && is(entry, "operation", "Apply")
            && is(entry, "subresource", subresource.unwrap_or_default())
    })
}

/// A map whose members are owned one by one: exactly those that are wanted, each with the wanted value.
fn members_in_sync(
    fields: &Map<String, Value>,
    desired: &Map<String, Value>,
    observed: Option<&Map<String, Value>>,
    unowned: &[&str],
) -> bool {
    let is_wanted = |name: &str| !unowned.contains(&name) && desired.get(name).is_some_and(|value| !value.is_null());
    let all_wanted_are_there = desired.iter().filter(|(name, _)| is_wanted(name)).all(|(name, value)| {
        match fields.get(&format!("{MEMBER}{name}")) {
            Some(below) => field_in_sync(below, value, observed.and_then(|observed| observed.get(name))),
            // A list that is merged item by item and has none leaves no trace.
            None => value.as_array().is_some_and(Vec::is_empty),
        }
    });
    // The metadata of the whole object is looked at apart.
    let is_known = |name: &str| is_wanted(name) || (name == "metadata" && unowned.contains(&name));
    all_wanted_are_there && fields.keys().all(|field| field == SELF || field.strip_prefix(MEMBER).is_some_and(is_known))
}

/// A field with its set of fields below it.
fn field_in_sync(fields: &Value, desired: &Value, observed: Option<&Value>) -> bool {
    let Some(fields) = fields.as_object() else { return false };
    if fields.keys().all(|field| field == SELF) {
        return is_same(desired, observed.unwrap_or(&Value::Null));
    }
    match desired {
        Value::Object(members) => members_in_sync(fields, members, observed.and_then(Value::as_object), &[]),
        Value::Array(items) => items_in_sync(fields, items, observed.and_then(Value::as_array)),
        _ => false,
    }
}

/// A list whose items are owned one by one: exactly those that are wanted, in the wanted order.
fn items_in_sync(fields: &Map<String, Value>, desired: &[Value], observed: Option<&Vec<Value>>) -> bool {
    let observed = observed.map(Vec::as_slice).unwrap_or_default();
    let mut owned: Vec<(&String, &Value)> = fields.iter().filter(|(field, _)| *field != SELF).collect();
    if owned.len() != desired.len() {
        return false;
    }
    let mut last_place = None;
    desired.iter().all(|item| {
        let Some(position) = owned.iter().position(|(field, _)| is_item(field, item)) else { return false };
        let (field, below) = owned.swap_remove(position);
        if let Some(value) = parsed(field, ITEM) {
            return observed.contains(&value);
        }
        let Some(keys) = parsed(field, KEYED) else { return false };
        let place = observed.iter().position(|seen| has_keys(seen, &keys, false));
        let in_order = place > last_place;
        last_place = place;
        in_order && place.is_some_and(|place| field_in_sync(below, item, observed.get(place)))
    })
}

/// Whether the name of an item in a set of fields means this item.
pub(crate) fn is_item(field: &str, item: &Value) -> bool {
    match (parsed(field, KEYED), parsed(field, ITEM)) {
        (Some(keys), _) => has_keys(item, &keys, true),
        (None, Some(value)) => value == *item,
        (None, None) => false,
    }
}

pub(crate) fn parsed(field: &str, prefix: &str) -> Option<Value> {
    serde_json::from_str(field.strip_prefix(prefix)?).ok()
}

/// Whether an item has these keys. A key that is not written may have a default, as the protocol of a port has.
pub(crate) fn has_keys(item: &Value, keys: &Value, may_lack: bool) -> bool {
    let Some(keys) = keys.as_object() else { return false };
    keys.iter().all(|(name, value)| match item.get(name) {
        Some(Value::Null) | None => may_lack,
        Some(other) => is_same_scalar(value, other),
    })
}

/// Whether something that is owned as a whole is as wanted. Members that are not wanted may be defaults or left-overs, which
/// looks the same, so they count as a difference.
fn is_same(desired: &Value, observed: &Value) -> bool {
    match (desired, observed) {
        (Value::Object(desired), Value::Object(observed)) => {
            let absent = &Value::Null;
            desired.iter().all(|(name, value)| is_same(value, observed.get(name).unwrap_or(absent)))
                && observed.iter().all(|(name, value)| desired.contains_key(name) || value.is_null())
        }
        (Value::Array(desired), Value::Array(observed)) => {
            desired.len() == observed.len()
                && desired.iter().zip(observed).all(|(desired, observed)| is_same(desired, observed))
        }
        (desired, Value::Null) => is_empty(desired),
        _ => is_same_scalar(desired, observed),
    }
}

fn is_same_scalar(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) if one.is_f64() || other.is_f64() => one.as_f64() == other.as_f64(),
        _ => one == other,
    }
}

/// Whether the server may leave it out: many fields of Kubernetes are not shown when they have the zero of their type. A field that
/// somebody else removed would not be ours any more.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(Value::is_null),
    }
}

#[cfg(test)]
mod tests;

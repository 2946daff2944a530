//! Which keys of `data` a field manager owns, and how keys that were written by plain updates become applied ones.
//!
//! The API server keeps, per manager and operation (`Apply` or `Update`), the set of fields that it set last. A later apply
//! removes only fields that the same manager *applied* before. Keys that an older program wrote with merge patches are in an
//! `Update` entry, so they would stay for ever; moving them into the `Apply` entry of the manager makes them removable.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value, json};

const APPLY: &str = "Apply";
const UPDATE: &str = "Update";
const DATA: &str = "f:data";
const KEY_PREFIX: &str = "f:";

/// Keys of `data` that one manager owns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataKeys {
    /// By server-side apply.
    pub applied: BTreeSet<String>,
    /// By updates and other patches.
    pub updated: BTreeSet<String>,
}

impl DataKeys {
    /// Keys owned by either operation.
    pub fn all(&self) -> BTreeSet<String> {
        self.applied.union(&self.updated).cloned().collect()
    }
}

/// The keys of `data` that `manager` owns according to `metadata.managedFields`. Unknown shapes count as nothing owned.
pub fn data_keys(managed_fields: &[ManagedFieldsEntry], manager: &str) -> DataKeys {
    let keys = |operation| {
        let entries = managed_fields.iter().filter(|entry| is_of(entry, manager, operation));
        entries.filter_map(data_of).flat_map(key_names).map(ToOwned::to_owned).collect()
    };
    DataKeys { applied: keys(APPLY), updated: keys(UPDATE) }
}

/// The managed fields after the `data` keys in the `Update` entries of `update_manager` have moved into the `Apply` entry of
/// `apply_manager`. Returns `None` if there are none.
///
/// Only `data` moves. Moving `type` or annotations too would make the next apply remove what it does not mention.
pub fn taken_over(
    managed_fields: &[ManagedFieldsEntry],
    update_manager: &str,
    apply_manager: &str,
) -> Option<Vec<ManagedFieldsEntry>> {
    let moving = data_keys(managed_fields, update_manager).updated;
    if moving.is_empty() {
        return None;
    }
    let mut entries = managed_fields.to_vec();
    for entry in entries.iter_mut().filter(|entry| is_of(entry, update_manager, UPDATE)) {
        if let Some(fields) = fields_mut(entry) {
            fields.remove(DATA);
        }
    }
    // The API server refuses an entry without fields.
    entries.retain(|entry| !is_of(entry, update_manager, UPDATE) || !is_empty(entry));
    let position = entries.iter().position(|entry| is_of(entry, apply_manager, APPLY)).unwrap_or_else(|| {
        entries.insert(0, new_apply_entry(apply_manager));
        0
    });
    let fields = entries[position].fields_v1.get_or_insert_with(|| FieldsV1(json!({})));
    for key in moving {
        fields.0[DATA][format!("{KEY_PREFIX}{key}")] = json!({});
    }
    Some(entries)
}

fn new_apply_entry(manager: &str) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        api_version: Some("v1".to_owned()),
        fields_type: Some("FieldsV1".to_owned()),
        fields_v1: Some(FieldsV1(json!({}))),
        manager: Some(manager.to_owned()),
        operation: Some(APPLY.to_owned()),
        ..ManagedFieldsEntry::default()
    }
}

fn is_of(entry: &ManagedFieldsEntry, manager: &str, operation: &str) -> bool {
    entry.manager.as_deref() == Some(manager)
        && entry.operation.as_deref() == Some(operation)
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

fn fields_mut(entry: &mut ManagedFieldsEntry) -> Option<&mut Map<String, Value>> {
    entry.fields_v1.as_mut()?.0.as_object_mut()
}

fn is_empty(entry: &ManagedFieldsEntry) -> bool {
    entry.fields_v1.as_ref().and_then(|fields| fields.0.as_object()).is_none_or(Map::is_empty)
}

fn data_of(entry: &ManagedFieldsEntry) -> Option<&Map<String, Value>> {
    entry.fields_v1.as_ref()?.0.get(DATA)?.as_object()
}

/// Names in a set of fields; `.` stands for the map itself and is none.
fn key_names(data: &Map<String, Value>) -> impl Iterator<Item = &str> {
    data.keys().filter_map(|field| field.strip_prefix(KEY_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            operation: Some(operation.to_owned()),
            fields_v1: Some(FieldsV1(fields)),
            ..ManagedFieldsEntry::default()
        }
    }

    fn set(keys: &[&str]) -> BTreeSet<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    #[test]
    fn keys_are_told_apart_by_manager_and_operation() {
        let fields = [
            entry("kubectl", UPDATE, json!({"f:data": {"f:theirs": {}}})),
            entry("ours", UPDATE, json!({"f:data": {".": {}, "f:old": {}, "f:f:odd": {}}, "f:type": {}})),
            entry("ours", APPLY, json!({"f:data": {"f:new": {}}})),
        ];
        assert_eq!(data_keys(&fields, "ours"), DataKeys { applied: set(&["new"]), updated: set(&["f:odd", "old"]) });
        assert_eq!(data_keys(&fields, "ours").all(), set(&["f:odd", "new", "old"]));
        assert_eq!(data_keys(&fields, "nobody"), DataKeys::default());
    }

    #[test]
    fn entries_of_subresources_and_unknown_shapes_count_for_nothing() {
        let status = ManagedFieldsEntry {
            subresource: Some("status".to_owned()),
            ..entry("ours", APPLY, json!({"f:data": {"f:a": {}}}))
        };
        assert_eq!(data_keys(&[status, entry("ours", APPLY, json!(["?"]))], "ours"), DataKeys::default());
    }

    #[test]
    fn only_data_moves() {
        let fields = [
            entry("ours", UPDATE, json!({"f:data": {".": {}, "f:old": {}}, "f:type": {}})),
            entry("ours", APPLY, json!({"f:data": {"f:new": {}}})),
        ];
        let after = taken_over(&fields, "ours", "ours").expect("something to move");
        assert_eq!(
            after,
            [
                entry("ours", UPDATE, json!({"f:type": {}})),
                entry("ours", APPLY, json!({"f:data": {"f:new": {}, "f:old": {}}})),
            ]
        );
        assert_eq!(taken_over(&after, "ours", "ours"), None);
    }

    #[test]
    fn an_apply_entry_is_made_and_an_empty_update_entry_goes() {
        let fields = [entry("theirs", UPDATE, json!({"f:data": {"f:old": {}}}))];
        let after = taken_over(&fields, "theirs", "ours").expect("something to move");
        assert_eq!(after.len(), 1);
        assert_eq!(data_keys(&after, "ours").applied, set(&["old"]));
        assert_eq!(after[0].api_version.as_deref(), Some("v1"));
    }
}

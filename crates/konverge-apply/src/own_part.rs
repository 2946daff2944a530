//! Whether a field manager's part of an object is as it was. Pure.

use serde_json::{Map, Value};

use crate::in_sync::{ITEM, KEYED, MEMBER, SELF, applied_entries, has_keys, parsed};

/// Whether the manager owns the same fields with the same values in both objects, so that no apply of it changed anything in between. The status
/// is left out.
pub(crate) fn is_own_part_same(seen: &Value, current: &Value, manager: &str) -> bool {
    let entries = |object| applied_entries(object, manager, None);
    entries(seen).eq(entries(current))
        && entries(seen).all(|entry| is_same_below(&entry["fieldsV1"], Some(seen), Some(current)))
}

fn is_same_below(fields: &Value, one: Option<&Value>, other: Option<&Value>) -> bool {
    let whole = |fields: &Map<String, Value>| fields.keys().all(|field| field == SELF);
    match fields.as_object() {
        Some(fields) if !whole(fields) => fields
            .iter()
            .filter(|(field, _)| *field != SELF)
            .all(|(field, below)| is_same_below(below, child(one, field), child(other, field))),
        _ => one == other,
    }
}

fn child<'a>(value: Option<&'a Value>, field: &str) -> Option<&'a Value> {
    if let Some(name) = field.strip_prefix(MEMBER) {
        return value?.get(name);
    }
    let items = value?.as_array()?;
    if let Some(keys) = parsed(field, KEYED) {
        return items.iter().find(|item| has_keys(item, &keys, true));
    }
    let item = parsed(field, ITEM)?;
    items.iter().find(|other| **other == item)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(labels: &Value, ports: &Value, time: &str) -> Value {
        json!({
            "metadata": {
                "labels": labels,
                "resourceVersion": time,
                "managedFields": [
                    {"manager": "ours", "operation": "Apply", "apiVersion": "v1", "time": time, "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:app": {}}, "f:finalizers": {".": {}, "v:\"f\"": {}}},
                        "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}}}},
                    }},
                    {"manager": "ours", "operation": "Apply", "subresource": "status", "time": "other", "fieldsV1": {}},
                    {"manager": "theirs", "operation": "Update", "time": "other", "fieldsV1": {"f:spec": {}}},
                ],
            },
            "spec": {"ports": ports},
        })
    }

    #[test]
    fn only_own_fields_and_their_values_count() {
        let seen = object(&json!({"app": "a"}), &json!([{"port": 80, "name": "web"}]), "1");
        let is_same = |labels, ports, time| is_own_part_same(&seen, &object(&labels, &ports, time), "ours");
        let ports = json!([{"port": 80, "name": "web"}]);
        assert!(is_same(json!({"app": "a"}), ports.clone(), "1"));
        // Others add what is theirs.
        let more = json!([{"port": 81}, {"port": 80, "name": "web", "nodePort": 3}]);
        assert!(is_same(json!({"app": "a", "by": "another"}), more, "1"));
        assert!(!is_same(json!({"app": "b"}), ports.clone(), "1"));
        assert!(!is_same(json!({}), ports.clone(), "1"));
        assert!(!is_same(json!({"app": "a"}), json!([{"port": 80, "name": "api"}]), "1"));
        assert!(!is_same(json!({"app": "a"}), json!([]), "1"));
        // The same values, applied later.
        assert!(!is_same(json!({"app": "a"}), ports, "2"));
    }

    #[test]
    fn a_manager_that_applied_nothing_has_nothing_to_lose() {
        let seen = object(&json!({"app": "a"}), &json!([]), "1");
        let current = object(&json!({"app": "b"}), &json!([]), "2");
        assert!(is_own_part_same(&seen, &current, "nobody"));
        assert!(!is_own_part_same(&seen, &current, "ours"));
    }
}

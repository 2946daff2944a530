//! Which part of a status belongs to one field manager. Pure.
//!
//! A controller reads the whole status, changes some of it, and applies the result with force. Everything in that apply becomes its own,
//! so the parts that it only read must stay out: its copy of them may be stale, and a part with two owners outlives its removal by one.

use serde_json::{Map, Value};

use crate::in_sync::applied_entries;

/// A part of the status, as it is to be applied.
#[derive(Debug, PartialEq)]
pub(super) struct Own {
    pub(super) status: Value,
    /// Whether conditions were left out although the manager has no record yet of how the API server merges the list.
    pub(super) is_list_unknown: bool,
    /// Whether the list of conditions is replaced as a whole, so that conditions of others had to be taken along.
    pub(super) is_list_atomic: bool,
}

/// How the API server merges a list of conditions, by the record of the manager's own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    ByType,
    Atomic,
    Unknown,
}

/// The fields of the status that the manager has applied, in whichever version; `Null` if there are none.
pub(super) fn applied_fields(observed: &Value, manager: &str) -> Value {
    let ours = applied_entries(observed, manager, Some("status"));
    let mut all = Value::Null;
    for fields in ours.filter_map(|entry| entry.pointer("/fieldsV1/f:status")) {
        merge(&mut all, fields);
    }
    all
}

fn merge(into: &mut Value, from: &Value) {
    match (&mut *into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (Value::Null, from) => *into = from.clone(),
        _ => {}
    }
}

/// The part of `status` that the manager is to apply: the members that differ from `seen`, and those that it has applied before.
/// `status` is the caller's copy of `seen` with its changes, and `fields` is what [`applied_fields`] returns.
pub(super) fn own(status: &Value, seen: &Value, fields: &Value) -> Own {
    let mut list = List::ByType;
    // An apply of an empty status leaves a record without members, which does not mean all of them.
    let fields = Some(fields).filter(|fields| !is_leaf(Some(fields)));
    let status = part(status, Some(seen), fields, "", &mut list).unwrap_or_else(|| Value::Object(Map::new()));
    Own { status, is_list_unknown: list == List::Unknown, is_list_atomic: list == List::Atomic }
}

/// Whether the manager owns the same fields of the status with the same values in both objects, so that it has not written in between.
pub(super) fn is_own_part_same(seen: &Value, current: &Value, manager: &str) -> bool {
    let own_part = |object: &Value| {
        let (fields, status) = (applied_fields(object, manager), object.get("status").cloned().unwrap_or_default());
        let part = own(&status, &status, &fields).status;
        (fields, part)
    };
    own_part(seen) == own_part(current)
}

/// The part of `status` with the whole list of conditions in it, because the list cannot be applied in parts.
pub(super) fn with_whole_list(mut own: Own, status: &Value) -> Own {
    if let Some(conditions) = status.get("conditions") {
        own.status["conditions"] = conditions.clone();
    }
    Own { is_list_unknown: false, is_list_atomic: true, ..own }
}

/// Whether the manager's fields say that it has applied the list of conditions as a whole.
pub(super) fn is_list_atomic(fields: &Value) -> bool {
    fields.get("f:conditions").is_some_and(|conditions| list_of(Some(conditions)) == List::Atomic)
}

fn list_of(fields: Option<&Value>) -> List {
    let fields = fields.and_then(Value::as_object);
    match fields {
        None => List::Unknown,
        Some(fields) if fields.keys().any(|key| key.starts_with("k:")) => List::ByType,
        // A list that is merged by type and of which the manager has no item leaves no trace.
        Some(_) => List::Atomic,
    }
}

fn part(value: &Value, seen: Option<&Value>, fields: Option<&Value>, name: &str, list: &mut List) -> Option<Value> {
    let fields = fields.filter(|fields| fields.is_object());
    match (value, seen) {
        (Value::Object(members), Some(Value::Object(before))) if !is_leaf(fields) => {
            let below = |name: &str| fields.and_then(|fields| fields.get(format!("f:{name}")));
            let parts: Map<String, Value> = members
                .iter()
                .filter_map(|(name, value)| {
                    Some((name.clone(), part(value, before.get(name), below(name), name, list)?))
                })
                .collect();
            (!parts.is_empty() || (members.is_empty() && (fields.is_some() || !before.is_empty())))
                .then_some(Value::Object(parts))
        }
        (Value::Array(items), Some(Value::Array(before))) if name == "conditions" && are_conditions(items) => {
            conditions(items, before, fields, list)
        }
        (value, seen) => (fields.is_some() || seen != Some(value)).then(|| value.clone()),
    }
}

/// Whether a member is owned as a whole.
fn is_leaf(fields: Option<&Value>) -> bool {
    fields.and_then(Value::as_object).is_some_and(|fields| fields.keys().all(|field| field == "."))
}

fn are_conditions(items: &[Value]) -> bool {
    items.iter().all(|item| item.get("type").is_some_and(Value::is_string))
}

/// The conditions that changed, and those that the manager has set before and nobody has taken over since. All of them, if the
/// list is replaced as a whole.
fn conditions(items: &[Value], before: &[Value], fields: Option<&Value>, list: &mut List) -> Option<Value> {
    let merged = list_of(fields);
    let is_own = |item: &&Value| !before.contains(item) || has_set(fields, item);
    let own: Vec<Value> = items.iter().filter(is_own).cloned().collect();
    match merged {
        List::Atomic => {
            *list = List::Atomic;
            return Some(items.to_vec().into());
        }
        List::Unknown if own.len() < items.len() => *list = List::Unknown,
        List::Unknown | List::ByType => {}
    }
    let is_emptied = items.is_empty() && !before.is_empty() && fields.is_some();
    (!own.is_empty() || is_emptied).then(|| own.into())
}

/// Whether the manager is an owner of what the condition says. A condition that others have forced to another value is theirs, although the manager
/// still owns its type.
fn has_set(fields: Option<&Value>, condition: &Value) -> bool {
    let items = fields.and_then(Value::as_object).into_iter().flatten();
    items.filter_map(|(key, below)| Some((key.strip_prefix("k:")?, below))).any(|(key, below)| {
        let keys = serde_json::from_str::<Value>(key).unwrap_or_default();
        keys.get("type") == condition.get("type") && below.get("f:status").is_some()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn condition(name: &str, status: &str) -> Value {
        json!({"type": name, "status": status, "reason": "R", "message": "", "lastTransitionTime": "t"})
    }

    /// The fields of a manager that has set these conditions.
    fn set(types: &[&str]) -> Value {
        let below = json!({".": {}, "f:type": {}, "f:status": {}, "f:reason": {}, "f:message": {}});
        let items: Map<String, Value> =
            types.iter().map(|name| (format!("k:{}", json!({"type": name})), below.clone())).collect();
        json!({"f:conditions": items})
    }

    fn types(own: &Own) -> Vec<&str> {
        let conditions = own.status.get("conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().filter_map(|condition| condition["type"].as_str()).collect()
    }

    #[test]
    fn conditions_that_were_only_read_stay_out() {
        let seen = json!({"conditions": [condition("Foo", "False"), condition("Ready", "False")]});
        let said = json!({"conditions": [condition("Foo", "False"), condition("Ready", "True")]});
        for fields in [set(&["Ready"]), set(&["Ready", "Gone"])] {
            assert_eq!(types(&own(&said, &seen, &fields)), ["Ready"]);
        }
        // A field that it has set before stays, even without a new value.
        assert_eq!(types(&own(&said, &seen, &set(&["Foo", "Ready"]))), ["Foo", "Ready"]);
        // A field that it no longer sets is left out, and thereby released.
        let less = json!({"conditions": [condition("Foo", "False")]});
        assert_eq!(types(&own(&less, &seen, &set(&["Ready"]))), [""; 0]);
        // A changed condition is claimed, no matter which manager set it.
        let claimed = json!({"conditions": [condition("Foo", "True"), condition("Ready", "False")]});
        assert_eq!(types(&own(&claimed, &seen, &set(&["Ready"]))), ["Foo", "Ready"]);
    }

    #[test]
    fn a_condition_that_others_forced_to_say_something_else_is_theirs() {
        let seen = json!({"conditions": [condition("Foo", "True")]});
        let fields = json!({"f:conditions": {r#"k:{"type":"Foo"}"#: {".": {}, "f:type": {}, "f:reason": {}}}});
        assert_eq!(own(&seen, &seen, &fields).status, json!({}));
    }

    #[test]
    fn a_list_without_keys_is_taken_as_a_whole() {
        let seen = json!({"conditions": [condition("Foo", "True"), condition("Ready", "False")]});
        let said = json!({"conditions": [condition("Foo", "True"), condition("Ready", "True")]});
        let fields = json!({"f:conditions": {}});
        assert!(is_list_atomic(&fields) && !is_list_atomic(&set(&["Ready"])) && !is_list_atomic(&json!({})));
        let whole = own(&said, &seen, &fields);
        assert_eq!((types(&whole), whole.is_list_atomic), (vec!["Foo", "Ready"], true));
        // Without a record it is not known, which matters only when there are others in it.
        let first = own(&said, &seen, &Value::Null);
        assert_eq!((types(&first), first.is_list_unknown), (vec!["Ready"], true));
        assert_eq!(types(&with_whole_list(first, &said)), ["Foo", "Ready"]);
        let alone = own(&said, &json!({"conditions": []}), &Value::Null);
        assert_eq!((types(&alone), alone.is_list_unknown), (vec!["Foo", "Ready"], false));
    }

    #[test]
    fn members_follow_the_same_rule_at_any_depth() {
        let seen = json!({"theirs": 1, "ours": 2, "both": {"a": 1, "b": 2}, "list": [1]});
        let table = [
            (json!({}), json!({"theirs": 1, "ours": 3, "both": {"a": 1, "b": 2}}), json!({"ours": 3})),
            (json!({"f:ours": {}}), seen.clone(), json!({"ours": 2})),
            (json!({"f:both": {"f:b": {}}}), seen.clone(), json!({"both": {"b": 2}})),
            (json!({"f:both": {}}), seen.clone(), json!({"both": {"a": 1, "b": 2}})),
            (json!({}), json!({"list": [1, 2]}), json!({"list": [1, 2]})),
            (json!({}), json!({"new": {"a": []}}), json!({"new": {"a": []}})),
            (json!({"f:ours": {}}), json!({"theirs": 1}), json!({})),
            (json!({}), json!({"both": {}}), json!({"both": {}})),
        ];
        for (fields, said, expected) in table {
            assert_eq!(own(&said, &seen, &fields).status, expected, "{said} {fields}");
        }
        assert_eq!(own(&seen, &Value::Null, &Value::Null).status, seen, "the first status is all its own");
    }

    #[test]
    fn the_record_of_all_versions_counts_and_of_nobody_else() {
        let entry = |manager: &str, operation: &str, subresource: &str, fields: Value| json!({"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": {"f:status": fields}});
        let entries = [
            entry("ours", "Apply", "status", json!({"f:a": {}})),
            entry("ours", "Apply", "status", json!({"f:b": {"f:c": {}}})),
            entry("ours", "Update", "status", json!({"f:d": {}})),
            entry("ours", "Apply", "", json!({"f:e": {}})),
            entry("theirs", "Apply", "status", json!({"f:f": {}})),
        ];
        let observed = json!({"metadata": {"managedFields": entries}});
        assert_eq!(applied_fields(&observed, "ours"), json!({"f:a": {}, "f:b": {"f:c": {}}}));
        assert_eq!(applied_fields(&json!({}), "ours"), Value::Null);
    }

    #[test]
    fn a_part_is_the_same_until_its_manager_writes() {
        let object = |fields: Value, status: Value| {
            let entry = json!({"manager": "ours", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": fields}});
            json!({"metadata": {"managedFields": [entry]}, "status": status})
        };
        let status = |theirs: &str, ours: &str, count: u8| json!({"conditions": [condition("Foo", theirs), condition("Ready", ours)], "count": count});
        let seen = object(set(&["Ready"]), status("True", "False", 1));
        let table = [
            (seen.clone(), true),
            (object(set(&["Ready"]), status("False", "False", 2)), true),
            (object(set(&["Ready"]), status("True", "True", 1)), false),
            (object(set(&["Ready", "Foo"]), status("True", "False", 1)), false),
            (json!({"status": status("True", "False", 1)}), false),
        ];
        for (current, expected) in table {
            assert_eq!(is_own_part_same(&seen, &current, "ours"), expected, "{current}");
            assert!(is_own_part_same(&seen, &current, "theirs"), "a manager without a part");
        }
        assert!(!is_own_part_same(&json!({}), &seen, "ours"), "the first status of a successor");
        assert!(is_own_part_same(&json!({}), &json!({"status": status("True", "True", 1)}), "ours"));
    }

    proptest! {
        /// The apply contains exactly the conditions that the run changed or had set before.
        #[test]
        fn no_condition_is_claimed_or_lost(
            all in proptest::collection::btree_map(0..8_u8, (any::<bool>(), any::<bool>(), any::<bool>()), 1..8)
        ) {
            let name = |number: &u8| format!("T{number}");
            let status = |is_true: bool| if is_true { "True" } else { "False" };
            let seen: Vec<_> = all.iter().map(|(number, (was, ..))| condition(&name(number), status(*was))).collect();
            let said: Vec<_> = all.iter().map(|(number, (_, is, _))| condition(&name(number), status(*is))).collect();
            let ours: Vec<String> = all.iter().filter(|(_, (.., ours))| *ours).map(|(number, _)| name(number)).collect();
            let fields = set(&ours.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assume!(!ours.is_empty());
            let own = own(&json!({"conditions": said}), &json!({"conditions": seen}), &fields);
            let expected: Vec<String> =
                all.iter().filter(|(_, (was, is, ours))| was != is || *ours).map(|(number, _)| name(number)).collect();
            prop_assert_eq!(types(&own), expected);
        }
    }
}

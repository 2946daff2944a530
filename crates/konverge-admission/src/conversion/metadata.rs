//! The metadata in a conversion: the API server lets only labels and annotations change.

use serde_json::{Map, Value};

/// The maps that a conversion may change.
const FREE: [&str; 2] = ["labels", "annotations"];

/// The sign that a conversion copied the metadata, and did not begin with blank metadata.
const IDENTITY: [&str; 3] = ["name", "namespace", "uid"];

/// The metadata of the converted object, from that of the original and that which the conversion gave.
///
/// A conversion that carried it over means what it says about labels and annotations, also when it removes some. A conversion with blank metadata has
/// only dropped the labels and annotations of the original. They stay, and those of the conversion are added.
pub(super) fn kept(original: Value, converted: Value) -> Value {
    let Value::Object(mut metadata) = original else { return converted };
    let carried = IDENTITY.iter().all(|key| metadata.get(*key) == converted.get(key));
    for key in FREE {
        let given = converted.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
        let mut entries = if carried { Map::new() } else { take_entries(&mut metadata, key) };
        entries.extend(given);
        metadata.remove(key);
        if !entries.is_empty() {
            metadata.insert(key.to_owned(), entries.into());
        }
    }
    Value::Object(metadata)
}

fn take_entries(metadata: &mut Map<String, Value>, key: &str) -> Map<String, Value> {
    match metadata.remove(key) {
        Some(Value::Object(entries)) => entries,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_labels_and_annotations_change() {
        let original =
            json!({"name": "a", "uid": "1", "generation": 7, "finalizers": ["f"], "labels": {"l": "1", "m": "1"}});
        let table = [
            (
                "carried over, one label gone, one changed, an annotation new",
                json!({"name": "a", "uid": "1", "labels": {"l": "2"}, "annotations": {"n": "1"}}),
                json!({"name": "a", "uid": "1", "generation": 7, "finalizers": ["f"], "labels": {"l": "2"}, "annotations": {"n": "1"}}),
            ),
            (
                "all labels removed, and forbidden changes",
                json!({"name": "a", "uid": "1", "generation": 8, "finalizers": []}),
                json!({"name": "a", "uid": "1", "generation": 7, "finalizers": ["f"]}),
            ),
            (
                "begun with a name only",
                json!({"name": "a", "labels": {"l": "2", "n": "3"}}),
                json!({"name": "a", "uid": "1", "generation": 7, "finalizers": ["f"], "labels": {"l": "2", "m": "1", "n": "3"}}),
            ),
            ("forgotten", Value::Null, original.clone()),
        ];
        for (what, converted, expected) in table {
            assert_eq!(kept(original.clone(), converted), expected, "{what}");
        }
    }
}

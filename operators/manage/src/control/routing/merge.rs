//! The strategic merge of a pod template: lists of a pod whose entries have names are merged by them. Pure.

use serde_json::Value;

/// The keys by which Kubernetes tells the entries of a pod's lists apart, in the order in which they are tried.
const KEYS: [&str; 5] = ["mountPath", "containerPort", "devicePath", "name", "ip"];

/// Merges `patch` into `base`. `null` removes a field.
pub(super) fn merge(base: &mut Value, patch: &Value) {
    match (base, patch) {
        (Value::Object(base), Value::Object(patch)) => {
            for (name, value) in patch {
                if value.is_null() {
                    base.remove(name);
                } else {
                    merge(base.entry(name.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(base), Value::Array(patch)) => match key(base, patch) {
            Some(key) => {
                for entry in patch {
                    match base.iter_mut().find(|known| known[key] == entry[key]) {
                        Some(known) => merge(known, entry),
                        None => base.push(entry.clone()),
                    }
                }
            }
            None => patch.clone_into(base),
        },
        (base, patch) => *base = patch.clone(),
    }
}

/// The key that all entries of both lists have; `None` for a list that is replaced whole.
fn key(base: &[Value], patch: &[Value]) -> Option<&'static str> {
    let has = |key: &str| base.iter().chain(patch).all(|entry| entry.get(key).is_some());
    KEYS.into_iter().find(|key| !patch.is_empty() && has(key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_merged_by_name_and_others_replaced() {
        let mut base = json!({ "spec": {
            "containers": [{ "name": "openzro", "image": "a", "env": [{ "name": "X", "value": "1" }], "args": ["a", "b"] }],
            "hostNetwork": true,
        } });
        merge(
            &mut base,
            &json!({ "metadata": { "labels": { "a": "b" } }, "spec": {
                "containers": [
                    { "name": "openzro", "env": [{ "name": "X", "value": "2" }, { "name": "Y", "value": "3" }], "args": ["c"] },
                    { "name": "more" },
                ],
                "hostNetwork": null,
                "tolerations": [{ "operator": "Exists" }],
            } }),
        );
        let expected = json!({ "metadata": { "labels": { "a": "b" } }, "spec": {
            "containers": [
                { "name": "openzro", "image": "a", "env": [{ "name": "X", "value": "2" }, { "name": "Y", "value": "3" }], "args": ["c"] },
                { "name": "more" },
            ],
            "tolerations": [{ "operator": "Exists" }],
        } });
        assert_eq!(base, expected);
    }
}

//! The difference that a write would make, for a dry run.

use std::fmt;

use serde_json::{Map, Value};

/// Members of `metadata` that change with every write and tell nothing.
const NOISE: [&str; 3] = ["generation", "managedFields", "resourceVersion"];

/// One place at which two states of an object differ.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// The place, such as `.spec.replicas` or `.spec.ports[0].name`.
    pub path: String,
    /// The value before. Hidden for Secrets.
    pub before: Value,
    /// The value afterwards. Hidden for Secrets.
    pub after: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.before, &self.after) {
            (Value::Null, after) => write!(out, "+ {}: {after}", self.path),
            (before, Value::Null) => write!(out, "- {}: {before}", self.path),
            (before, after) => write!(out, "~ {}: {before} -> {after}", self.path),
        }
    }
}

/// The places at which `after` differs from `before`; everything when there was nothing. With `hide`, no value is in it.
pub(crate) fn differences(before: Option<&Value>, after: &Value, hide: bool) -> Vec<Difference> {
    let nothing = Value::Object(Map::new());
    let mut found = Vec::new();
    compare(String::new(), before.unwrap_or(&nothing), after, &mut found);
    if hide {
        for difference in &mut found {
            for value in [&mut difference.before, &mut difference.after] {
                if !value.is_null() {
                    *value = Value::from("(hidden)");
                }
            }
        }
    }
    found
}

fn compare(path: String, before: &Value, after: &Value, found: &mut Vec<Difference>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Object(before), Value::Object(after)) => {
            let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
            for name in names.filter(|name| path != ".metadata" || !NOISE.contains(&name.as_str())) {
                let member = |of: &Map<String, Value>| of.get(name).cloned().unwrap_or_default();
                compare(joined(&path, name), &member(before), &member(after), found);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (position, (before, after)) in before.iter().zip(after).enumerate() {
                compare(format!("{path}[{position}]"), before, after, found);
            }
        }
        _ => found.push(Difference { path, before: before.clone(), after: after.clone() }),
    }
}

/// The path of a member. Names such as those of annotations have dots of their own and are quoted.
pub(crate) fn joined(path: &str, name: &str) -> String {
    if name.contains(['.', '/', '[', '"']) { format!("{path}[{name:?}]") } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(before: &Value, after: &Value, hide: bool) -> Vec<String> {
        differences(Some(before), after, hide).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn places_are_named_and_noise_is_left_out() {
        let before = json!({
            "metadata": {"resourceVersion": "1", "annotations": {"a.b/c": "1"}}, "items": [{"a": 1}, {"b": 2}], "gone": true
        });
        let after = json!({
            "metadata": {"resourceVersion": "2", "annotations": {"a.b/c": "2"}}, "items": [{"a": 1}, {"b": 3}], "list": [1]
        });
        assert_eq!(
            shown(&before, &after, false),
            [
                "- .gone: true",
                "~ .items[1].b: 2 -> 3",
                r#"~ .metadata.annotations["a.b/c"]: "1" -> "2""#,
                "+ .list: [1]",
            ]
        );
        assert!(shown(&after, &after, false).is_empty());
    }

    #[test]
    fn hidden_values_leave_only_names() {
        let (before, after) = (json!({"data": {"a": "c2VjcmV0"}}), json!({"data": {"a": "aHVudGVy", "b": "aHVudGVy"}}));
        assert_eq!(
            shown(&before, &after, true),
            [r#"~ .data.a: "(hidden)" -> "(hidden)""#, r#"+ .data.b: "(hidden)""#]
        );
        let made = differences(None, &after, true);
        assert_eq!(made.iter().map(ToString::to_string).collect::<Vec<_>>(), [r#"+ .data: "(hidden)""#]);
    }
}

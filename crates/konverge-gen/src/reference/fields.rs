//! The fields of a schema, for people.

use serde_json::{Map, Value};

use super::{code, row};

/// A table of the fields beneath a schema of a custom resource definition: path, type, meaning.
///
/// `path` is the path of the schema itself, such as `spec`. Items of lists have `[]` in their path, and values of maps `{}`.
pub fn fields(path: &str, schema: &Value) -> String {
    let mut page = "| Field | Type | Meaning |\n|---|---|---|\n".to_owned();
    beneath(&mut page, path, schema);
    page
}

/// Adds the fields of an object, of the items of a list or of the values of a map.
fn beneath(page: &mut String, path: &str, schema: &Value) {
    if let Some(properties) = schema["properties"].as_object() {
        let required: Vec<&str> = texts(&schema["required"]).collect();
        for (name, field) in properties {
            let path = format!("{path}.{name}");
            row(page, &[&code(&path), &kind(field), &meaning(field, required.contains(&name.as_str()))]);
            beneath(page, &path, field);
        }
    } else if let Some(items) = schema.get("items") {
        beneath(page, &format!("{path}[]"), items);
    } else if let Some(values) = schema.get("additionalProperties") {
        beneath(page, &format!("{path}{{}}"), values);
    }
}

fn kind(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    match (schema["type"].as_str(), schema.get("items"), schema.get("additionalProperties")) {
        (Some("array"), Some(items), _) => format!("list of {}", kind(items)),
        (Some("object"), _, Some(values)) if values.is_object() => format!("map of {}", kind(values)),
        (Some(name), ..) => {
            schema["format"].as_str().map_or_else(|| name.to_owned(), |format| format!("{name} ({format})"))
        }
        (None, ..) => "any".to_owned(),
    }
}

/// The limits of a field that a schema can state, each with the words for it.
const LIMITS: [(&str, &str); 9] = [
    ("minimum", "At least"),
    ("maximum", "At most"),
    ("minLength", "Shortest length:"),
    ("maxLength", "Greatest length:"),
    ("minItems", "Fewest items:"),
    ("maxItems", "Most items:"),
    ("maxProperties", "Most entries:"),
    ("pattern", "Pattern:"),
    ("default", "Default:"),
];

/// The description, whether the field is required, and what values it takes.
fn meaning(schema: &Value, is_required: bool) -> String {
    let mut sentences: Vec<String> = schema["description"].as_str().map(sentence).into_iter().collect();
    sentences.extend(is_required.then(|| "Required.".to_owned()));
    // Items of a list have their values in its row: they have none of their own unless they are objects.
    for schema in [Some(schema), schema.get("items")].into_iter().flatten().filter_map(Value::as_object) {
        let values: Vec<_> = schema.get("enum").into_iter().flat_map(texts).map(code).collect();
        sentences.extend((!values.is_empty()).then(|| format!("One of {}.", values.join(", "))));
        sentences.extend(limits(schema));
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
        sentences.extend(rules.filter_map(|rule| rule["message"].as_str()).map(sentence));
    }
    sentences.join(" ")
}

fn limits(schema: &Map<String, Value>) -> impl Iterator<Item = String> {
    LIMITS.iter().filter_map(|(name, words)| {
        let value = schema.get(*name)?;
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // A schema keeps each number as one with a fraction.
        let value = value.strip_suffix(".0").unwrap_or(&value);
        Some(format!("{words} {}.", if value.is_empty() { "empty".to_owned() } else { code(value) }))
    })
}

fn texts(values: &Value) -> impl Iterator<Item = &str> {
    values.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.ends_with(['.', '!', '?', ':']) { text.to_owned() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_has_a_row_with_its_type_and_its_limits() {
        let schema = json!({
            "type": "object",
            "required": ["path"],
            "properties": {
                "any": { "x-kubernetes-preserve-unknown-fields": true },
                "engine": { "type": "integer", "minimum": 1.0, "maximum": 2.5 },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                "mode": { "type": "string", "enum": ["soft", "hard"], "default": "soft", "description": "How | when" },
                "path": {
                    "type": "string",
                    "minLength": 1,
                    "description": "Where.",
                    "x-kubernetes-validations": [{ "rule": "true", "message": "no slash at the end" }],
                },
                "port": { "x-kubernetes-int-or-string": true },
                "rows": {
                    "type": "array",
                    "maxItems": 3,
                    "items": { "type": "object", "properties": { "at": { "type": "string", "format": "date-time" } } },
                },
                "words": { "type": "array", "items": { "type": "string", "enum": ["a", "b"] } },
            },
        });
        let expected = "| Field | Type | Meaning |\n|---|---|---|\n\
            | `spec.any` | any |  |\n\
            | `spec.engine` | integer | At least `1`. At most `2.5`. |\n\
            | `spec.labels` | map of string |  |\n\
            | `spec.mode` | string | How \\| when. One of `soft`, `hard`. Default: `soft`. |\n\
            | `spec.path` | string | Where. Required. Shortest length: `1`. no slash at the end. |\n\
            | `spec.port` | integer or string |  |\n\
            | `spec.rows` | list of object | Most items: `3`. |\n\
            | `spec.rows[].at` | string (date-time) |  |\n\
            | `spec.words` | list of string | One of `a`, `b`. |\n";
        assert_eq!(fields("spec", &schema), expected);
    }

    #[test]
    fn values_of_a_map_have_rows_too() {
        let schema = json!({ "additionalProperties": { "properties": { "key": { "type": "string" } } } });
        assert!(fields("data", &schema).ends_with("| `data{}.key` | string |  |\n"));
    }
}

//! The schema of the chart's values, from the values themselves: it describes each of them, and a value that it does not describe is refused.

use std::error::Error;

use serde_json::{Map, Value, json};

/// The folder of values that the chart of the original calls `operator`.
const ALIAS: (&str, &str) = ("operator", "pull");

/// `values.schema.json`.
pub(crate) fn of(values: &Value) -> Result<String, Box<dyn Error>> {
    let mut schema = described("", values);
    let pull = schema["properties"][ALIAS.1].clone();
    schema["properties"][ALIAS.0] = pull;
    // Of a chart that has this one as a part.
    schema["properties"]["global"] = json!({ "type": "object" });
    schema["$schema"] = "https://json-schema.org/draft-07/schema#".into();
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

fn described(path: &str, value: &Value) -> Value {
    if let Some(special) = special(path) {
        return special;
    }
    match value {
        Value::Object(members) if members.is_empty() => json!({ "type": "object" }),
        Value::Object(members) => {
            let of_member =
                |(name, value): (&String, &Value)| (name.clone(), described(&format!("{path}.{name}"), value));
            let properties: Map<String, Value> = members.iter().map(of_member).collect();
            json!({ "type": "object", "properties": properties, "additionalProperties": false })
        }
        Value::Array(_) => json!({ "type": "array" }),
        Value::Bool(_) => json!({ "type": "boolean" }),
        Value::Number(_) => json!({ "type": "integer", "minimum": 0 }),
        Value::String(_) | Value::Null => json!({ "type": "string" }),
    }
}

/// Values whose type says too little.
fn special(path: &str) -> Option<Value> {
    let name = path.rsplit('.').next().unwrap_or_default();
    let texts = |one: Value| json!({ "type": "array", "items": one });
    Some(match name {
        "digest" => json!({ "type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$" }),
        "pullPolicy" if path == ".image.pullPolicy" => json!({ "enum": ["Always", "IfNotPresent", "Never"] }),
        // Of a part: empty is that of all.
        "pullPolicy" => json!({ "enum": ["", "Always", "IfNotPresent", "Never"] }),
        "logFormat" => json!({ "enum": ["text", "json"] }),
        "labels" => json!({ "type": "object" }),
        "workspaceFingerprints" => {
            json!({ "type": "object", "additionalProperties": { "type": "string", "minLength": 1 } })
        }
        "type" if path == ".server.database.type" => json!({ "enum": ["sqlite", "postgres"] }),
        "backend" => json!({ "enum": ["auto", "memory", "postgres"] }),
        "existing" => json!({ "enum": ["adopt", "refuse"] }),
        "layout" => json!({ "enum": ["auto", "file", "env"] }),
        "grpcPort" | "httpPort" | "port" => json!({ "type": "integer", "minimum": 1, "maximum": 65535 }),
        "kinds" if path.starts_with(".push") => {
            texts(json!({ "enum": konverge_push::object::Kind::ALL.map(konverge_push::object::Kind::plural) }))
        }
        "kinds" => texts(json!({ "enum": konverge_roll::config::KINDS.map(konverge_workload::WorkloadKind::plural) })),
        "allow" | "allowPath" | "extraArgs" => texts(json!({ "type": "string" })),
        "accounts" => texts(json!({
            "type": "object",
            "properties": {
                "namespace": { "type": "string", "minLength": 1 },
                "secret": { "type": "string", "minLength": 1 },
                "key": { "type": "string" },
                "managementURL": { "type": "string" },
            },
            "required": ["namespace", "secret"],
            "additionalProperties": false,
        })),
        "imagePullSecrets" | "tolerations" | "extraEnv" | "topologySpreadConstraints" => {
            texts(json!({ "type": "object" }))
        }
        _ => return None,
    })
}

//! Pieces of the schemas of the definitions.

use serde_json::{Map, Value, json};

/// The schema of a kind. openzro-operator lets objects of its v1 kinds have no spec.
pub(super) fn root(description: &str, is_spec_required: bool, spec: Value, status: Value) -> Value {
    let mut schema = object(description, &[], json!({}));
    schema["properties"]["spec"] = spec;
    schema["properties"]["status"] = status;
    if is_spec_required {
        schema["required"] = json!(["spec"]);
    }
    schema
}

/// An object with these properties.
pub(super) fn object(description: &str, required: &[&str], properties: Value) -> Value {
    let mut schema = json!({ "type": "object", "description": description });
    schema["properties"] = properties;
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// `schema` with these keywords added.
pub(super) fn with(mut schema: Value, keywords: Value) -> Value {
    if let (Value::Object(schema), Value::Object(keywords)) = (&mut schema, keywords) {
        schema.extend(keywords);
    }
    schema
}

pub(super) fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

/// A text that is not empty.
pub(super) fn filled_text(description: &str) -> Value {
    with(text(description), json!({ "minLength": 1 }))
}

pub(super) fn word(description: &str, words: &[&str]) -> Value {
    with(text(description), json!({ "enum": words }))
}

pub(super) fn time(description: &str) -> Value {
    with(text(description), json!({ "format": "date-time" }))
}

pub(super) fn boolean(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

pub(super) fn int32(description: &str) -> Value {
    json!({ "type": "integer", "format": "int32", "description": description })
}

pub(super) fn int64(description: &str) -> Value {
    json!({ "type": "integer", "format": "int64", "description": description })
}

pub(super) fn list(description: &str, items: Value) -> Value {
    let mut schema = json!({ "type": "array", "description": description });
    schema["items"] = items;
    schema
}

pub(super) fn texts(description: &str) -> Value {
    list(description, json!({ "type": "string" }))
}

/// A list of texts that are not empty.
pub(super) fn filled_texts(description: &str) -> Value {
    list(description, json!({ "type": "string", "minLength": 1 }))
}

pub(super) fn numbers(description: &str) -> Value {
    list(description, json!({ "type": "integer", "format": "int32" }))
}

pub(super) fn map(description: &str) -> Value {
    json!({ "type": "object", "description": description, "additionalProperties": { "type": "string" } })
}

/// `schema`, whose value cannot change once it is set.
pub(super) fn immutable(schema: Value, message: &str) -> Value {
    rules(schema, &[("self == oldSelf", message)])
}

/// `schema` with rules, each with the message of a refusal.
pub(super) fn rules(schema: Value, rules: &[(&str, &str)]) -> Value {
    let rules: Vec<_> = rules.iter().map(|(rule, message)| json!({ "rule": rule, "message": message })).collect();
    with(schema, json!({ "x-kubernetes-validations": rules }))
}

/// An object of which only these properties are checked here: it is a part of a pod, and the API server checks the pod.
fn part_of_a_pod(description: &str, required: &[&str]) -> Value {
    let properties: Map<_, _> = required.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" }))).collect();
    let mut schema = with(
        json!({ "type": "object", "description": description }),
        json!({ "x-kubernetes-preserve-unknown-fields": true }),
    );
    if !required.is_empty() {
        schema = with(schema, json!({ "required": required, "properties": properties }));
    }
    schema
}

/// Any object of a pod.
pub(super) fn embedded(description: &str) -> Value {
    part_of_a_pod(description, &[])
}

pub(super) fn volumes() -> Value {
    list("Further volumes of the pod.", part_of_a_pod("A volume, as in a pod.", &["name"]))
}

pub(super) fn volume_mounts() -> Value {
    list(
        "Further mounts of the openZro container.",
        part_of_a_pod("A mount of a volume, as in a pod.", &["mountPath", "name"]),
    )
}

/// A reference to an object of the same namespace. openzro-operator accepts an empty name.
pub(super) fn local_reference(description: &str) -> Value {
    let name = with(text("The name of the object."), json!({ "default": "" }));
    with(object(description, &[], json!({ "name": name })), json!({ "x-kubernetes-map-type": "atomic" }))
}

/// A reference whose name must be given.
pub(super) fn named_reference(description: &str) -> Value {
    object(description, &["name"], json!({ "name": text("The name of the object.") }))
}

/// The conditions of a v1 kind. All but type and status are optional, as in objects that openzro-operator wrote.
pub(super) fn conditions() -> Value {
    let condition = object(
        "A condition.",
        &["status", "type"],
        json!({
            "type": text("The type of the condition, such as Ready."),
            "status": text("True, False or Unknown."),
            "reason": text("The reason for the status, in one word for programs."),
            "message": text("The reason for the status, in words for people."),
            "lastProbeTime": time("openzro-operator's time of the last check. Not written any more."),
            "lastTransitionTime": time("When the status changed last."),
            "observedGeneration": int64("The generation of the object that the condition is about."),
        }),
    );
    by_type(list("Ready, and while it is not True: Reconciling or Stalled.", condition))
}

/// The conditions of a v1alpha1 kind, as Kubernetes defines them.
pub(super) fn standard_conditions() -> Value {
    let condition = object(
        "A condition.",
        &["lastTransitionTime", "message", "reason", "status", "type"],
        json!({
            "type": with(text("The type of the condition, such as Ready."), json!({
                "maxLength": 316,
                "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            })),
            "status": word("True, False or Unknown.", &["True", "False", "Unknown"]),
            "reason": with(text("The reason for the status, in one word for programs."), json!({
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            })),
            "message": with(text("The reason for the status, in words for people."), json!({ "maxLength": 32768 })),
            "lastTransitionTime": time("When the status changed last."),
            "observedGeneration": with(
                int64("The generation of the object that the condition is about."),
                json!({ "minimum": 0.0 }),
            ),
        }),
    );
    by_type(list("Ready, and while it is not True: Reconciling or Stalled.", condition))
}

fn by_type(conditions: Value) -> Value {
    with(conditions, json!({ "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"] }))
}

pub(super) fn observed_generation() -> Value {
    int64("The generation of the object that this status is about.")
}

/// A status: `properties`, the conditions and the generation.
pub(super) fn status(conditions: Value, properties: Value) -> Value {
    let mut standard = json!({ "observedGeneration": observed_generation() });
    standard["conditions"] = conditions;
    object("The state that the operator observed.", &[], with(standard, properties))
}

/// The status of a v1alpha1 kind. openzro-operator gives new objects the generation -1, so that tools wait for the first run.
pub(super) fn status_with_default(properties: Value) -> Value {
    with(status(standard_conditions(), properties), json!({ "default": { "observedGeneration": -1 } }))
}

/// A selector of labels, as Kubernetes defines it.
pub(super) fn label_selector(description: &str) -> Value {
    let expression = object(
        "A condition on a label.",
        &["key", "operator"],
        json!({
            "key": text("The label."),
            "operator": text("In, NotIn, Exists or DoesNotExist."),
            "values": with(texts("Values for In and NotIn."), json!({ "x-kubernetes-list-type": "atomic" })),
        }),
    );
    let expressions =
        with(list("Conditions that all have to hold.", expression), json!({ "x-kubernetes-list-type": "atomic" }));
    let properties = json!({ "matchExpressions": expressions, "matchLabels": map("Labels and their values.") });
    with(object(description, &[], properties), json!({ "x-kubernetes-map-type": "atomic" }))
}

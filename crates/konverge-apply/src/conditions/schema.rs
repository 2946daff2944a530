//! The schema of conditions, for custom resources.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::Conditions;

impl JsonSchema for Conditions {
    /// A custom resource definition has no references.
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Conditions".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema()
    }
}

/// The schema of a list of conditions, for a field that is a plain `Vec<Condition>`: `#[schemars(schema_with = "…")]`.
///
/// The list is merged by `type`: without that, a server-side apply of one manager takes the conditions of all others away.
pub fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    schema()
}

fn schema() -> Schema {
    json_schema!({
        "type": "array",
        "description": "What is true of the object, since when, and why.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status changed last."
                },
                "message": {
                    "type": "string",
                    "maxLength": 32768,
                    "description": "For people; may be empty."
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The generation of the object that this was said about; an older one may be out of date."
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "The reason for the status, in one word for programs."
                },
                "status": {
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                    "description": "Whether it is true."
                },
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "The type of the condition; unique in the list."
                }
            }
        }
    })
}

//! Parts of a pod within a custom resource.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A part of a pod that Kubernetes would not accept there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is not valid: {why}; correct it as the reference of Kubernetes describes the field of a pod")]
pub struct InvalidField {
    /// The field, such as `spec.volumes`.
    pub field: &'static str,
    /// The expected value.
    pub why: String,
}

/// Decodes a part of a pod. The error names the field.
pub fn embedded<T: DeserializeOwned>(field: &'static str, value: &Value) -> Result<T, InvalidField> {
    T::deserialize(value).map_err(|error| InvalidField { field, why: error.to_string() })
}

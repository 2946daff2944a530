//! An object that does not parse must not end the watch of all the others.

use std::{borrow::Cow, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error};
use serde_json::Value;

/// An object as the API server sent it: decoded, or with the error that kept it from being decoded.
///
/// A watch that decodes into this reports an object that breaks the rules of its kind, and goes on with all others. Another version of the
/// CRD, or a person, may have made such an object. It differs from kube's `DeserializeGuard` in its cost: nothing is copied
/// unless decoding fails.
#[derive(Debug, Clone)]
pub struct Guarded<K>(pub Result<K, Undecodable>);

/// An object that is not what its kind says.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct Undecodable {
    /// The object's metadata.
    pub metadata: ObjectMeta,
    /// The decoder's error.
    pub error: String,
}

tokio::task_local! {
    /// The manager whose `managedFields` are decoded.
    static KEPT: Arc<str>;
}

/// Runs what decodes objects of which only the `managedFields` of this manager are wanted.
///
/// Those of others are often larger than the object. Decoded and dropped later, they would leave holes between objects that stay. A
/// decoder has no parameters, hence this way.
pub(crate) async fn keeping<T>(manager: Arc<str>, decodes: impl Future<Output = T>) -> T {
    KEPT.scope(manager, decodes).await
}

fn drop_fields_of_others(object: &mut Value) {
    // Outside of `keeping` there is nobody to ask, and all is kept.
    let _ = KEPT.try_with(|kept| {
        if let Some(entries) = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
            entries.retain(|entry| entry.get("manager").and_then(Value::as_str) == Some(kept));
        }
    });
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        drop_fields_of_others(&mut value);
        K::deserialize(&value)
            .map(Ok)
            .or_else(|error| {
                let metadata = ObjectMeta::deserialize(value.get("metadata").unwrap_or(&Value::Null));
                let metadata = metadata.map_err(D::Error::custom)?;
                Ok(Err(Undecodable { metadata, error: error.to_string() }))
            })
            .map(Self)
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn kind(kind: &K::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &K::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &K::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &K::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|undecodable| &undecodable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|undecodable| &mut undecodable.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn the_fields_of_others_are_not_decoded_where_only_ours_are_kept() {
        let entry = |manager: &str| json!({"manager": manager, "operation": "Apply", "fieldsV1": {"f:data": {}}});
        let fields = json!([entry("kubectl"), entry("ours"), {"operation": "Update"}]);
        let decode = || {
            let object = json!({"metadata": {"name": "b", "managedFields": fields}});
            let object: Guarded<ConfigMap> = serde_json::from_value(object).unwrap();
            let entries = object.meta().managed_fields.clone().unwrap_or_default();
            entries.into_iter().map(|entry| entry.manager.unwrap_or_default()).collect::<Vec<_>>()
        };
        assert_eq!(decode(), ["kubectl", "ours", ""]);
        assert_eq!(keeping("ours".into(), async { decode() }).await, ["ours"]);
        let nothing: Guarded<ConfigMap> = keeping("ours".into(), async { serde_json::from_str("{}").unwrap() }).await;
        assert!(nothing.0.is_ok());
    }

    #[test]
    fn an_object_that_does_not_parse_keeps_its_name() {
        let metadata = json!({"namespace": "a", "name": "b"});
        let good: Guarded<ConfigMap> =
            serde_json::from_value(json!({"metadata": metadata, "data": {"key": "value"}})).unwrap();
        assert_eq!(good.0.unwrap().data.unwrap()["key"], "value");
        let bad: Guarded<ConfigMap> = serde_json::from_value(json!({"metadata": metadata, "data": 7})).unwrap();
        assert_eq!(bad.meta().name.as_deref(), Some("b"));
        let error = bad.0.unwrap_err().to_string();
        assert!(error.contains("invalid type: integer `7`"), "{error}");
    }
}

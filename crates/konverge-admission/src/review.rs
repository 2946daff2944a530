//! The request: what the API server wants to know.

use std::fmt;

use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::{GroupVersionKind, GroupVersionResource};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// Everything that the API server says about a request that it is about to carry out.
///
/// It gets no further field, because `admission.k8s.io/v1` does not either. A handler's test makes one from the parts that matter and
/// [`Review::default`]:
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use konverge_admission::{Operation, Review};
///
/// let review = Review { operation: Operation::Create, object: Some(ConfigMap::default()), ..Review::default() };
/// assert!(review.old_object.is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "T: DeserializeOwned"))]
pub struct Review<T> {
    /// Of this question, not of the object.
    pub uid: String,
    /// The kind of `object` and `old_object`.
    pub kind: GroupVersionKind,
    /// The resource of the request, in the version that the webhook declared.
    pub resource: GroupVersionResource,
    /// The subresource, for example `status` or `scale`.
    #[serde(default, rename = "subResource", deserialize_with = "filled")]
    pub subresource: Option<String>,
    /// The value in the client's request, before the API server converted it for this webhook.
    #[serde(default)]
    pub request_kind: Option<GroupVersionKind>,
    /// The value in the client's request, before the API server converted it for this webhook.
    #[serde(default)]
    pub request_resource: Option<GroupVersionResource>,
    /// The value in the client's request, before the API server converted it for this webhook.
    #[serde(default, rename = "requestSubResource", deserialize_with = "filled")]
    pub request_subresource: Option<String>,
    /// Absent on a create that leaves the name to the server (`generateName`), and when a collection is deleted.
    #[serde(default, deserialize_with = "filled")]
    pub name: Option<String>,
    /// Absent for cluster-scoped objects.
    #[serde(default, deserialize_with = "filled")]
    pub namespace: Option<String>,
    /// The operation; a patch or an apply arrives as its effect.
    pub operation: Operation,
    /// The user that sent it.
    #[serde(default)]
    pub user_info: UserInfo,
    /// The object as it would be stored; absent on a delete.
    #[serde(default = "none")]
    pub object: Option<T>,
    /// The object as it is stored; absent on a create.
    #[serde(default = "none")]
    pub old_object: Option<T>,
    /// Nothing will be stored, so a handler must leave nothing behind.
    #[serde(default)]
    pub dry_run: bool,
    /// The options, for example `CreateOptions`, with the field manager.
    #[serde(default)]
    pub options: Option<Value>,
}

/// The operation on the object. A match on it can be exhaustive: new words are [`Unknown`](Self::Unknown).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub enum Operation {
    /// It is made.
    Create,
    /// It is changed.
    Update,
    /// It goes away.
    Delete,
    /// Something like `kubectl exec` opens a connection.
    Connect,
    /// A word that this version does not know.
    Unknown(String),
}

impl From<String> for Operation {
    fn from(word: String) -> Self {
        match word.as_str() {
            "CREATE" => Self::Create,
            "UPDATE" => Self::Update,
            "DELETE" => Self::Delete,
            "CONNECT" => Self::Connect,
            _ => Self::Unknown(word),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Unknown(word) => word,
        })
    }
}

/// An object in a request that is not of the form that the handler knows. Names the field and never its value: that may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part} cannot be read at {path}: {why}")]
#[non_exhaustive]
pub struct Undecodable {
    /// `object` or `oldObject`.
    pub part: &'static str,
    /// Of the field, such as `spec.containers[0].name`; `.` is the object itself.
    pub path: String,
    /// The expected value.
    pub why: String,
}

impl<T> Default for Review<T> {
    /// A create of nothing by nobody.
    fn default() -> Self {
        Self {
            uid: String::new(),
            kind: GroupVersionKind::gvk("", "", ""),
            resource: GroupVersionResource::gvr("", "", ""),
            subresource: None,
            request_kind: None,
            request_resource: None,
            request_subresource: None,
            name: None,
            namespace: None,
            operation: Operation::Create,
            user_info: UserInfo::default(),
            object: None,
            old_object: None,
            dry_run: false,
            options: None,
        }
    }
}

impl<T> Review<T> {
    /// The same request about another form of its objects; `convert` is told which of `object` and `oldObject` it gets.
    fn try_map<U, E>(self, mut convert: impl FnMut(&'static str, T) -> Result<U, E>) -> Result<Review<U>, E> {
        let object = self.object.map(|object| convert("object", object)).transpose()?;
        let old_object = self.old_object.map(|object| convert("oldObject", object)).transpose()?;
        Ok(Review {
            uid: self.uid,
            kind: self.kind,
            resource: self.resource,
            subresource: self.subresource,
            request_kind: self.request_kind,
            request_resource: self.request_resource,
            request_subresource: self.request_subresource,
            name: self.name,
            namespace: self.namespace,
            operation: self.operation,
            user_info: self.user_info,
            object,
            old_object,
            dry_run: self.dry_run,
            options: self.options,
        })
    }
}

impl Review<Value> {
    /// Reads the objects.
    pub fn decode<T: DeserializeOwned>(self) -> Result<Review<T>, Undecodable> {
        self.try_map(|part, value| decode(part, &value))
    }
}

/// Reads one object.
pub(crate) fn decode<T: DeserializeOwned>(part: &'static str, value: &Value) -> Result<T, Undecodable> {
    serde_path_to_error::deserialize(value).map_err(|error| Undecodable {
        part,
        path: error.path().to_string(),
        why: without_value(&error.inner().to_string()),
    })
}

/// Returns a decoder's message without the value that it quotes: `invalid type: string "x", expected i32` becomes `invalid type: string, expected
/// i32`. Complaints without a value, and those in a type's own words, stay as they are.
fn without_value(complaint: &str) -> String {
    let Some((found, expected)) = complaint.rsplit_once(", expected ") else { return complaint.to_owned() };
    let found = found.split(['"', '`']).next().unwrap_or_default().trim_end();
    format!("{found}, expected {expected}")
}

/// The API server sends an empty string where it means nothing.
fn filled<'de, D: Deserializer<'de>>(decoder: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(decoder)?.filter(|text| !text.is_empty()))
}

/// Spares `T` the `Default` that serde's own default would ask for.
fn none<T>() -> Option<T> {
    None
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use serde_json::json;

    use super::*;

    fn sent() -> Value {
        json!({
            "uid": "705ab4f5",
            "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
            "resource": { "group": "", "version": "v1", "resource": "configmaps" },
            "subResource": "status",
            "requestKind": { "group": "", "version": "v1beta1", "kind": "ConfigMap" },
            "requestResource": { "group": "", "version": "v1beta1", "resource": "configmaps" },
            "requestSubResource": "",
            "name": "settings",
            "namespace": "shop",
            "operation": "UPDATE",
            "userInfo": { "username": "ann", "groups": ["staff"] },
            "object": { "metadata": { "name": "settings" }, "data": { "a": "2" } },
            "oldObject": { "metadata": { "name": "settings" }, "data": { "a": "1" } },
            "dryRun": true,
            "options": { "kind": "UpdateOptions", "fieldManager": "test" },
        })
    }

    #[test]
    fn every_field_is_read() {
        let review: Review<ConfigMap> = serde_json::from_value::<Review<Value>>(sent()).unwrap().decode().unwrap();
        assert_eq!((review.uid.as_str(), review.kind.kind.as_str()), ("705ab4f5", "ConfigMap"));
        assert_eq!((review.resource.resource.as_str(), review.subresource.as_deref()), ("configmaps", Some("status")));
        assert_eq!(review.request_kind.map(|kind| kind.version).as_deref(), Some("v1beta1"));
        assert_eq!(review.request_resource.map(|resource| resource.version).as_deref(), Some("v1beta1"));
        assert_eq!(review.request_subresource, None);
        assert_eq!((review.name.as_deref(), review.namespace.as_deref()), (Some("settings"), Some("shop")));
        assert_eq!((review.operation, review.dry_run), (Operation::Update, true));
        assert_eq!(review.user_info.username.as_deref(), Some("ann"));
        assert_eq!(review.object.unwrap().data.unwrap()["a"], "2");
        assert_eq!(review.old_object.unwrap().data.unwrap()["a"], "1");
        assert_eq!(review.options.unwrap()["fieldManager"], "test");
    }

    #[test]
    fn what_may_be_absent_or_null_is_nothing() {
        let mut sent = sent();
        for key in ["object", "options", "userInfo", "dryRun", "name", "namespace", "requestKind", "subResource"] {
            sent.as_object_mut().unwrap().remove(key);
        }
        sent["oldObject"] = Value::Null;
        let review: Review<ConfigMap> = serde_json::from_value::<Review<Value>>(sent).unwrap().decode().unwrap();
        assert_eq!((review.object, review.old_object, review.options, review.name), (None, None, None, None));
        assert!(!review.dry_run);
    }

    #[test]
    fn operations_are_known_by_their_words() {
        let table = [
            ("CREATE", Operation::Create),
            ("UPDATE", Operation::Update),
            ("DELETE", Operation::Delete),
            ("CONNECT", Operation::Connect),
            ("RENAME", Operation::Unknown("RENAME".to_owned())),
        ];
        for (word, operation) in table {
            assert_eq!(serde_json::from_value::<Operation>(json!(word)).unwrap(), operation);
            assert_eq!(operation.to_string(), word);
        }
    }

    #[test]
    fn an_unreadable_object_is_named_by_field_and_not_by_value() {
        let table = [
            (
                json!({"spec": {"containers": [{"name": 5}]}}),
                "spec.containers[0].name",
                "invalid type: integer, expected a string",
            ),
            (
                json!({"spec": {"hostNetwork": "hunter, expected 2"}}),
                "spec.hostNetwork",
                "invalid type: string, expected a boolean",
            ),
            (json!("hunter2"), ".", "invalid type: string, expected Pod"),
        ];
        for (value, path, why) in table {
            let undecodable = decode::<Pod>("object", &value).unwrap_err();
            assert_eq!((undecodable.path.as_str(), undecodable.why.as_str()), (path, why));
            assert!(!undecodable.to_string().contains("hunter"));
        }
        assert_eq!(without_value("missing field `size`"), "missing field `size`");
    }

    #[test]
    fn the_part_that_is_unreadable_is_named() {
        let mut sent = sent();
        sent["oldObject"]["data"] = json!(7);
        let undecodable = serde_json::from_value::<Review<Value>>(sent).unwrap().decode::<ConfigMap>().unwrap_err();
        assert_eq!((undecodable.part, undecodable.path.as_str()), ("oldObject", "data"));
    }
}

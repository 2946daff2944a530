//! An object in requests: where its kind is served, and the JSON of it.

use std::{any::TypeId, borrow::Cow};

use http::{HeaderValue, Request, header::ACCEPT};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Resource, api::ListParams, core::request};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{error::ApplyError, object_name::ObjectName};

/// A kind of object that can be written: every typed kind, and `DynamicObject`.
pub trait Writable: Resource<Scope: 'static> + Serialize + DeserializeOwned + Clone {}

impl<K: Resource<Scope: 'static> + Serialize + DeserializeOwned + Clone> Writable for K {}

/// How an answer is asked for that has the metadata of the object and nothing else.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// An object and where its kind is served.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) object: ObjectName,
    pub(crate) api_version: String,
    url_path: String,
    /// The caller knows no more of the object than its metadata, and more must not come into the process: it may be secret.
    metadata_only: bool,
}

impl Target {
    /// The target of an object's own name and namespace. A name, or a namespace of a namespaced kind, must be there. Whether a
    /// dynamic object has a namespace is taken from the object.
    pub(crate) fn of<K: Resource<Scope: 'static>>(object: &K, kind: &K::DynamicType) -> Result<Self, ApplyError> {
        let metadata = object.meta();
        let missing = |field| ApplyError::MissingField {
            kind: K::kind(kind).into_owned(),
            name: metadata.name.clone().unwrap_or_default(),
            field,
        };
        let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        let name = given(&metadata.name).ok_or_else(|| missing("metadata.name"))?;
        let namespace = given(&metadata.namespace);
        if namespace.is_none() && is_namespaced::<K>() {
            return Err(missing("metadata.namespace"));
        }
        Ok(Self::named::<K>(kind, namespace.as_deref(), name))
    }

    /// The target of a name. A namespace that a cluster-scoped kind cannot have is left out.
    pub(crate) fn named<K: Resource<Scope: 'static>>(
        kind: &K::DynamicType,
        namespace: Option<&str>,
        name: String,
    ) -> Self {
        let namespace = namespace.filter(|_| TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>());
        Self {
            url_path: K::url_path(kind, namespace),
            api_version: K::api_version(kind).into_owned(),
            metadata_only: K::metadata_api(),
            object: ObjectName { kind: K::kind(kind).into_owned(), namespace: namespace.map(ToOwned::to_owned), name },
        }
    }

    /// The error if the object is gone, or is another one of the same name.
    pub(crate) fn gone(&self) -> ApplyError {
        ApplyError::Gone { object: Box::new(self.object.clone()) }
    }

    /// The error if the object has changed since the caller saw it.
    pub(crate) fn out_of_date(&self) -> ApplyError {
        ApplyError::OutOfDate { object: Box::new(self.object.clone()) }
    }

    /// The error if an answer about the object cannot be read.
    pub(crate) fn unreadable(&self, source: serde_json::Error) -> ApplyError {
        ApplyError::Answer { object: Box::new(self.object.clone()), source }
    }

    /// The request, asking for no more than the caller may see.
    pub(crate) fn asking(
        &self,
        request: Result<Request<Vec<u8>>, request::Error>,
    ) -> Result<Request<Vec<u8>>, request::Error> {
        let mut request = request?;
        if self.metadata_only {
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA));
        }
        Ok(request)
    }

    /// A list that asks for no more than the caller may see.
    pub(crate) fn list(&self, parameters: &ListParams) -> Result<Request<Vec<u8>>, request::Error> {
        let requests = self.requests();
        if self.metadata_only { requests.list_metadata(parameters) } else { requests.list(parameters) }
    }

    /// A builder of requests about the kind, in the namespace.
    pub(crate) fn requests(&self) -> request::Request {
        request::Request::new(self.url_path.clone())
    }

    pub(crate) fn name(&self) -> &str {
        &self.object.name
    }

    /// Tells it from all other objects.
    pub(crate) fn key(&self) -> String {
        key(&self.api_version, &self.object)
    }

    /// Whether values of the object must never be shown.
    pub(crate) fn is_secret(&self) -> bool {
        self.object.kind == "Secret"
    }
}

/// Tells an object from all others, in whichever version of its group it is looked at.
pub(crate) fn key(api_version: &str, object: &ObjectName) -> String {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    format!("{group} {} {}/{}", object.kind, object.namespace.as_deref().unwrap_or_default(), object.name)
}

/// Whether objects of the kind have a namespace for sure.
pub(crate) fn is_namespaced<K: Resource<Scope: 'static>>() -> bool {
    TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>()
}

/// The object as JSON, as it would be written.
pub(crate) fn json<K: Resource<Scope: 'static> + Serialize>(
    object: &K,
    kind: &K::DynamicType,
) -> Result<Value, ApplyError> {
    serde_json::to_value(object).map_err(|source| ApplyError::Encode {
        kind: K::kind(kind).into_owned(),
        name: object.meta().name.clone().unwrap_or_default(),
        source,
    })
}

/// A string member of `metadata`.
pub(crate) fn metadata_string<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get("metadata")?.get(field)?.as_str()
}

/// Text that fits, cut between two characters, with an ellipsis where something was cut. `limit` counts bytes and must be at
/// least the three of the ellipsis.
pub(crate) fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    const ELLIPSIS: &str = "…";
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let end = konverge_core::names::floor_char_boundary(text, limit.saturating_sub(ELLIPSIS.len()));
    Cow::Owned(format!("{}{ELLIPSIS}", &text[..end]))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    use kube::{api::ObjectMeta, core::PartialObjectMeta};
    use proptest::prelude::*;

    use super::*;

    fn metadata(namespace: Option<&str>, name: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            namespace: namespace.map(ToOwned::to_owned),
            name: name.map(ToOwned::to_owned),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_missing_name_or_namespace_is_an_error_that_says_which() {
        let table = [
            (None, Some("app"), "metadata.namespace"),
            (Some(""), Some("app"), "metadata.namespace"),
            (Some("shop"), None, "metadata.name"),
            (Some("shop"), Some(""), "metadata.name"),
        ];
        for (namespace, name, field) in table {
            let object = ConfigMap { metadata: metadata(namespace, name), ..ConfigMap::default() };
            let error = Target::of(&object, &()).expect_err(field);
            assert!(error.to_string().contains(field), "{error}");
        }
    }

    #[test]
    fn objects_are_shown_with_their_kind() {
        let object = ConfigMap { metadata: metadata(Some("shop"), Some("app")), ..ConfigMap::default() };
        assert_eq!(Target::of(&object, &()).expect("a target").object.to_string(), "ConfigMap shop/app");
        let object = Namespace { metadata: metadata(None, Some("shop")), ..Namespace::default() };
        assert_eq!(Target::of(&object, &()).expect("a target").object.to_string(), "Namespace shop");
    }

    #[test]
    fn where_only_metadata_is_known_only_metadata_is_asked_for() {
        let metadata = metadata(Some("shop"), Some("app"));
        let whole = ConfigMap { metadata: metadata.clone(), ..ConfigMap::default() };
        let partial: PartialObjectMeta<ConfigMap> =
            PartialObjectMeta { metadata, types: None, _phantom: std::marker::PhantomData };
        let accepted = |target: Target| {
            let request = target.requests().delete(target.name(), &kube::api::DeleteParams::default());
            target.asking(request).expect("a request").headers().get(ACCEPT).cloned()
        };
        assert_eq!(accepted(Target::of(&whole, &()).expect("a target")), None);
        assert_eq!(accepted(Target::of(&partial, &()).expect("a target")).expect("a header"), METADATA);
    }

    proptest! {
        #[test]
        fn shortened_text_fits_and_says_that_it_was_cut(text in "\\PC{0,60}", limit in 3_usize..60) {
            let short = shortened(&text, limit);
            prop_assert!(short.len() <= limit.max(3));
            if text.len() <= limit {
                prop_assert_eq!(short, &*text);
            } else {
                let kept = short.strip_suffix('…').expect("an ellipsis");
                prop_assert!(text.starts_with(kept));
                prop_assert!(kept.len() + 7 > limit);
            }
        }
    }
}

//! The requirements for a kind to be watched, and the key of an object.

use std::{fmt, hash::Hash};

use kube::{
    Api, Client, Resource,
    core::{ClusterResourceScope, DynamicResourceScope, NamespaceResourceScope, ResourceScope},
};
use serde::de::DeserializeOwned;

/// A kind that can be watched and cached: typed, metadata only (`PartialObjectMeta<K>`) or dynamic. Implemented for all of them.
pub trait Object:
    Resource<DynamicType: Clone + Eq + Hash + Send + Sync, Scope: Scope>
    + Clone
    + fmt::Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType: Clone + Eq + Hash + Send + Sync, Scope: Scope>
        + Clone
        + fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Where objects of a kind live, known to the compiler where the kind is.
///
/// A kind is asked for where it lives, or it does not compile. This does:
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
/// use konverge_runtime::object::Scope;
/// use kube::core::{ClusterResourceScope, NamespaceResourceScope};
///
/// fn apis(client: kube::Client) -> (kube::Api<ConfigMap>, kube::Api<Namespace>) {
///     let inside = NamespaceResourceScope::api(client.clone(), &(), Some("shop"));
///     (inside, ClusterResourceScope::api(client, &(), None))
/// }
/// ```
///
/// A namespace in a namespace does not:
///
/// ```compile_fail,E0271
/// use k8s_openapi::api::core::v1::Namespace;
/// use konverge_runtime::object::Scope;
/// use kube::core::NamespaceResourceScope;
///
/// fn wrong(client: kube::Client) -> kube::Api<Namespace> {
///     NamespaceResourceScope::api(client, &(), Some("shop"))
/// }
/// ```
///
/// And neither does a kind of namespaces as one of the cluster:
///
/// ```compile_fail,E0271
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use konverge_runtime::object::Scope;
/// use kube::core::ClusterResourceScope;
///
/// fn wrong(client: kube::Client) -> kube::Api<ConfigMap> {
///     ClusterResourceScope::api(client, &(), None)
/// }
/// ```
pub trait Scope: ResourceScope + 'static {
    /// Whether objects may be in namespaces.
    const IS_NAMESPACED: bool;

    /// The API for one namespace or for all. Kinds without namespaces have one API whatever is asked for.
    fn api<K: Resource<Scope = Self>>(client: Client, kind: &K::DynamicType, namespace: Option<&str>) -> Api<K>;
}

impl Scope for ClusterResourceScope {
    const IS_NAMESPACED: bool = false;

    fn api<K: Resource<Scope = Self>>(client: Client, kind: &K::DynamicType, _namespace: Option<&str>) -> Api<K> {
        Api::all_with(client, kind)
    }
}

impl Scope for NamespaceResourceScope {
    const IS_NAMESPACED: bool = true;

    fn api<K: Resource<Scope = Self>>(client: Client, kind: &K::DynamicType, namespace: Option<&str>) -> Api<K> {
        let all = Api::all_with(client, kind);
        match namespace {
            Some(namespace) => all.constrain(namespace),
            None => all,
        }
    }
}

impl Scope for DynamicResourceScope {
    const IS_NAMESPACED: bool = true;

    fn api<K: Resource<Scope = Self>>(client: Client, kind: &K::DynamicType, namespace: Option<&str>) -> Api<K> {
        let all = Api::all_with(client, kind);
        match namespace {
            Some(namespace) => all.constrain(namespace),
            None => all,
        }
    }
}

/// The name of one object of a kind that the context tells. It gets no further field.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its namespace, where the kind has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl ObjectKey {
    /// An object in a namespace.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    /// An object of a kind without namespaces.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// The key of `object`; nothing while it has no name yet.
    pub fn of<K: Resource>(object: &K) -> Option<Self> {
        let meta = object.meta();
        Some(Self { namespace: meta.namespace.clone(), name: meta.name.clone()? })
    }
}

/// `namespace/name`, or `name` alone: what `kubectl` and logs show.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

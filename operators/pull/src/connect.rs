//! Connects stores as `SecretSource` and `ClusterSecretSource` objects say, and tells on them whether the store lets them in.
//!
//! The leader connects. It reads the Secrets that an object names when they change, and at least each minute, and connects anew if their values are others.

mod build;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Namespace, Secret};
use konverge::prelude::{Action, Context, Controller, CustomStatus, Error, Reason, Reconcile};
use konverge_core::{
    SecretValue,
    digest::{ContentDigest, DigestKey},
};
use konverge_runtime::{
    cache::{Caching, Change},
    object::{Object, ObjectKey},
};
use kube::{Api, Client, CustomResourceExt, Resource, ResourceExt, api::ListParams, core::object::HasStatus};
use tokio::{sync::mpsc::UnboundedReceiver, time::timeout};
use zeroize::Zeroize;

use self::build::{Materials, Place, Store, build};
use crate::{
    bindings::{Bindings, SecretRef},
    messages,
    objects::secret_source::{ClusterSecretSource, NamespaceSelector, SecretKey, SecretSource},
    reasons,
    source::{Cause, Connection, ConnectionName, Connections, Failure, Namespaces, connections},
    wakes::trigger,
    zopp::memory::Accepted,
};

/// How often an object is looked at without a change.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// How long a store has to answer who may come in.
const LONGEST_CHECK: Duration = Duration::from_secs(10);

/// How many objects are looked at at the same time, so that stores that do not answer delay no other.
const WORKERS: usize = 64;

/// A kind whose objects are connections.
pub trait Connects: Object + Resource<DynamicType = ()> + HasStatus<Status: CustomStatus> {
    /// Returns the store, and how to log in.
    fn store(&self) -> Result<Store<'_>, String>;

    /// Returns the namespace of the Secrets and service accounts.
    fn credentials_namespace(&self) -> String;

    /// Returns the namespaces that may use it: patterns of names, and labels. `None` is the object's own namespace.
    fn admits(&self) -> Option<(&[String], Option<&NamespaceSelector>)>;
}

impl Connects for SecretSource {
    fn store(&self) -> Result<Store<'_>, String> {
        Store::of(self.spec.vault.as_ref(), self.spec.zopp.as_ref())
    }

    fn credentials_namespace(&self) -> String {
        self.namespace().unwrap_or_default()
    }

    fn admits(&self) -> Option<(&[String], Option<&NamespaceSelector>)> {
        None
    }
}

impl Connects for ClusterSecretSource {
    fn store(&self) -> Result<Store<'_>, String> {
        Store::of(self.spec.vault.as_ref(), self.spec.zopp.as_ref())
    }

    fn credentials_namespace(&self) -> String {
        self.spec.credentials_namespace.clone()
    }

    fn admits(&self) -> Option<(&[String], Option<&NamespaceSelector>)> {
        Some((self.spec.namespaces.as_deref().unwrap_or_default(), self.spec.namespace_selector.as_ref()))
    }
}

/// Connects stores. Clones are the same.
#[derive(Clone)]
pub struct Connecting(Arc<Inner>);

struct Inner {
    client: Client,
    bindings: Arc<Bindings>,
    connections: Arc<Connections>,
    /// The environments of zopp whose older state a person accepts.
    accepted: Accepted,
    /// This process's own: no digest leaves it.
    digest_key: DigestKey,
}

impl Connecting {
    /// Connects stores for the Secrets of these bindings.
    pub fn new(client: Client, bindings: Arc<Bindings>, connections: Arc<Connections>, accepted: Accepted) -> Self {
        let digest_key = DigestKey::new(rand::random());
        Self(Arc::new(Inner { client, bindings, connections, accepted, digest_key }))
    }

    /// Returns the controller of a kind. It runs for the objects that come out of `wakes`, besides those that change.
    pub fn controller<K>(&self, wakes: UnboundedReceiver<ObjectKey>) -> Controller<K, Self>
    where
        K: Connects + CustomResourceExt,
        Self: Reconcile<K>,
    {
        let controller = Controller::<K, _>::new(self.clone()).caching(Caching::optional_without_warning);
        controller.workers(WORKERS).trigger("credentials", trigger(&self.0, wakes, Inner::changed))
    }
}

impl Inner {
    /// The watch shows a change of an object.
    fn changed<K: Connects>(&self, key: &ObjectKey, change: &Change<K>) {
        if change.new.is_none() {
            let name = ConnectionName { namespace: key.namespace.clone(), name: key.name.clone() };
            self.connections.uses(&name, []);
            self.disconnect(&name, connections::missing(&name));
        }
    }

    async fn run<K: Connects>(&self, object: &K, context: &Context<K>) -> Result<Action, Error> {
        let name = ConnectionName { namespace: object.namespace(), name: object.name_any() };
        let refused = |reason: &'static str, text: String| {
            let statement = messages::source_not_ready(&format!("{name} is not ready: {text}"));
            self.disconnect(&name, Failure { statement, kind: reason, cause: Cause::Refused });
            Error::refused(reason, text)
        };
        let store = object.store().map_err(|cause| refused(reasons::INVALID_SPEC, cause))?;
        let namespace = object.credentials_namespace();
        let keys = store.secrets();
        let secret = |key: &SecretKey| SecretRef { namespace: namespace.clone(), name: key.name.clone() };
        self.connections.uses(&name, keys.iter().map(secret));
        // While the API server does not answer, the connection stays as it is.
        let materials = self.read(&namespace, &keys).await?;
        let materials = materials.map_err(|cause| refused(reasons::CREDENTIALS_UNAVAILABLE, cause))?;
        let namespaces = self.namespaces(object.admits()).await?;

        let made_of = self.digest(store, &namespace, &materials)?;
        let before = self.connections.get(&name).filter(|connection| connection.made_of == made_of);
        let source = if let Some(connection) = &before {
            Arc::clone(&connection.source)
        } else {
            let place = Place { client: &self.client, namespace: &namespace, materials: &materials };
            build(store, &place, &self.accepted).map_err(|cause| refused(reasons::INVALID_SPEC, cause))?
        };
        if before.is_none_or(|before| before.namespaces != namespaces) {
            self.connect(&name, Connection { source: Arc::clone(&source), namespaces, made_of });
        }
        match timeout(LONGEST_CHECK, source.check()).await {
            Ok(Ok(())) => {
                let warning =
                    "; its address does not use TLS, so everybody on the way can read and change what is sent";
                let warning = if store.is_unprotected() { warning } else { "" };
                context.ready(Reason::new(reasons::CONNECTED), format!("the store lets this identity in{warning}"));
                Ok(Action::After(LOOK_AGAIN))
            }
            Ok(Err(statement)) => Err(Error::refused(statement.reason, statement.text)),
            Err(_) => {
                let text = format!("the store has not let this identity in within {} s", LONGEST_CHECK.as_secs());
                Err(Error::refused(reasons::SERVER_UNREACHABLE, text))
            }
        }
    }

    /// Reads keys of Secrets, each Secret once, so that a certificate and its key belong together. The outer error is that of the API server, the inner one is about a Secret.
    async fn read(&self, namespace: &str, keys: &[SecretKey]) -> Result<Result<Materials, String>, Error> {
        let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let mut wanted = BTreeMap::<&str, BTreeSet<&str>>::new();
        for SecretKey { name, key } in keys {
            wanted.entry(name).or_default().insert(key);
        }
        let mut materials = Materials::new();
        for (name, keys) in wanted {
            let found = match api.get_opt(name).await {
                Err(kube::Error::Api(status)) if status.is_forbidden() => {
                    return Ok(Err(format!("cannot read Secret {namespace}/{name}: {}", status.message)));
                }
                found => found?,
            };
            let Some(secret) = found else { return Ok(Err(format!("Secret {namespace}/{name} does not exist"))) };
            let mut data = secret.data.unwrap_or_default();
            let values: Vec<_> = keys.into_iter().map(|key| (key, data.remove(key))).collect();
            for other in data.values_mut() {
                other.0.zeroize();
            }
            for (key, value) in values {
                let Some(value) = value else { return Ok(Err(format!("Secret {namespace}/{name} has no key {key}"))) };
                materials.insert((name.to_owned(), key.to_owned()), Arc::new(SecretValue::new(value.0)));
            }
        }
        Ok(Ok(materials))
    }

    /// Returns the namespaces that may use a connection.
    async fn namespaces(&self, admits: Option<(&[String], Option<&NamespaceSelector>)>) -> Result<Namespaces, Error> {
        let Some((patterns, selector)) = admits else { return Ok(Namespaces::Own) };
        let (patterns, mut selected) = (patterns.to_vec(), BTreeSet::new());
        if let Some(NamespaceSelector { match_labels }) = selector {
            let labels: Vec<_> = match_labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
            let parameters = ListParams::default().labels(&labels.join(","));
            let found = Api::<Namespace>::all(self.client.clone()).list_metadata(&parameters).await?;
            selected.extend(found.items.iter().map(ResourceExt::name_any));
        }
        Ok(Namespaces::Selected { patterns, selected })
    }

    /// Returns a digest of what a connection is made of.
    fn digest(&self, store: Store<'_>, namespace: &str, materials: &Materials) -> Result<ContentDigest, Error> {
        let store = serde_json::to_vec(&store)?;
        let of_secrets = materials.iter().map(|((name, key), value)| (format!("{name}/{key}"), value.expose()));
        let of_secrets: Vec<_> = of_secrets.collect();
        let of_secrets = of_secrets.iter().map(|(name, value)| (&**name, *value));
        Ok(self.digest_key.digest(of_secrets.chain([("", &*store), ("/", namespace.as_bytes())])))
    }

    fn connect(&self, name: &ConnectionName, connection: Connection) {
        let source = Arc::clone(&connection.source);
        let before = self.connections.connect(name, Arc::new(connection), &self.bindings.records());
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(&before.source, &source)) {
            close(before);
        }
    }

    fn disconnect(&self, name: &ConnectionName, failure: Failure) {
        if let Some(before) = self.connections.disconnect(name, failure) {
            close(before);
        }
    }
}

/// Gives back what the store has handed out, without waiting for it.
fn close(connection: Arc<Connection>) {
    tokio::spawn(async move { connection.source.close().await });
}

impl Reconcile<SecretSource> for Connecting {
    type Error = Error;

    async fn apply(&self, object: Arc<SecretSource>, context: Context<SecretSource>) -> Result<Action, Error> {
        self.0.run(&*object, &context).await
    }
}

impl Reconcile<ClusterSecretSource> for Connecting {
    type Error = Error;

    async fn apply(
        &self,
        object: Arc<ClusterSecretSource>,
        context: Context<ClusterSecretSource>,
    ) -> Result<Action, Error> {
        self.0.run(&*object, &context).await
    }
}

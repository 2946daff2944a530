//! Connects stores as `SecretSource` and `ClusterSecretSource` objects say, and tells on them whether the store lets them in.
//!
//! The leader connects. It reads the Secrets that an object names when they change, and at least each minute, and connects anew if their values are others.

mod build;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::stream;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use konverge::prelude::{Action, Context, Controller, CustomStatus, Error, Reason, Reconcile};
use konverge_core::{
    SecretValue,
    digest::{ContentDigest, DigestKey},
};
use konverge_runtime::{
    cache::{Caching, Change, Store},
    object::{Object, ObjectKey},
};
use kube::{Api, Client, CustomResourceExt, Resource, ResourceExt, api::ListParams, core::object::HasStatus};
use tokio::{sync::mpsc::UnboundedReceiver, time::timeout};
use zeroize::Zeroize;

use self::build::{Materials, Place, Store as StoreSpec, build};
use crate::{
    bindings::{Bindings, SecretRef},
    messages,
    objects::secret_source::{ClusterSecretSource, NamespaceSelector, SecretKey, SecretSource},
    reasons,
    source::{Cause, Connection, ConnectionName, Connections, Failure, Namespaces, connections},
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
    fn store(&self) -> Result<StoreSpec<'_>, String>;

    /// Returns the namespace of the Secrets and service accounts.
    fn credentials_namespace(&self) -> String;

    /// Returns the namespaces that may use it: patterns of names, and labels. `None` is the object's own namespace.
    fn admits(&self) -> Option<(&[String], Option<&NamespaceSelector>)>;
}

impl Connects for SecretSource {
    fn store(&self) -> Result<StoreSpec<'_>, String> {
        StoreSpec::of(self.spec.vault.as_ref(), self.spec.zopp.as_ref())
    }

    fn credentials_namespace(&self) -> String {
        self.namespace().unwrap_or_default()
    }

    fn admits(&self) -> Option<(&[String], Option<&NamespaceSelector>)> {
        None
    }
}

impl Connects for ClusterSecretSource {
    fn store(&self) -> Result<StoreSpec<'_>, String> {
        StoreSpec::of(self.spec.vault.as_ref(), self.spec.zopp.as_ref())
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
    /// What each connection was made of: a digest of the specification and of the Secrets.
    made_of: Mutex<HashMap<ConnectionName, ContentDigest>>,
}

impl Connecting {
    /// Connects stores for the Secrets of these bindings.
    pub fn new(client: Client, bindings: Arc<Bindings>, connections: Arc<Connections>, accepted: Accepted) -> Self {
        let digest_key = DigestKey::new(rand::random());
        let made_of = Mutex::default();
        Self(Arc::new(Inner { client, bindings, connections, accepted, digest_key, made_of }))
    }

    /// Returns the controller of a kind. It runs for the objects that come out of `wakes`, besides those that change.
    pub fn controller<K>(&self, wakes: UnboundedReceiver<ObjectKey>) -> Controller<K, Self>
    where
        K: Connects + CustomResourceExt,
        Self: Reconcile<K>,
    {
        // The store keeps what subscribes to it for as long as the process runs.
        let inner = Arc::downgrade(&self.0);
        let stream = move |store: Store<K>| {
            store.subscribe(move |key, change: &Change<K>| {
                if let (None, Some(inner)) = (&change.new, inner.upgrade()) {
                    let name = ConnectionName { namespace: key.namespace.clone(), name: key.name.clone() };
                    inner.connections.uses(&name, []);
                    inner.disconnect(&name, connections::missing(&name));
                }
            });
            stream::unfold(wakes, async |mut wakes| Some((wakes.recv().await?, wakes)))
        };
        let controller = Controller::<K, _>::new(self.clone()).caching(Caching::optional_without_warning);
        controller.workers(WORKERS).trigger("credentials", stream)
    }
}

impl Inner {
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

        let digest = self.digest(store, &namespace, &materials)?;
        let is_same = self.made_of().get(&name) == Some(&digest);
        let before = self.connections.get(&name).filter(|_| is_same);
        let source = if let Some(connection) = &before {
            Arc::clone(&connection.source)
        } else {
            let place = Place { client: &self.client, namespace: &namespace, materials: &materials };
            build(store, &place, &self.accepted).map_err(|cause| refused(reasons::INVALID_SPEC, cause))?
        };
        if before.is_none_or(|before| before.namespaces != namespaces) {
            self.connect(&name, Connection { source: Arc::clone(&source), namespaces }, digest);
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

    /// Reads keys of Secrets. The outer error is that of the API server, the inner one is about a Secret.
    async fn read(&self, namespace: &str, keys: &[SecretKey]) -> Result<Result<Materials, String>, Error> {
        let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let mut materials = Materials::new();
        for SecretKey { name, key } in keys {
            let found = match api.get_opt(name).await {
                Err(kube::Error::Api(status)) if status.is_forbidden() => {
                    return Ok(Err(format!("cannot read Secret {namespace}/{name}: {}", status.message)));
                }
                found => found?,
            };
            let Some(secret) = found else { return Ok(Err(format!("Secret {namespace}/{name} does not exist"))) };
            let mut data = secret.data.unwrap_or_default();
            let value = data.remove(key);
            for other in data.values_mut() {
                other.0.zeroize();
            }
            let Some(value) = value else { return Ok(Err(format!("Secret {namespace}/{name} has no key {key}"))) };
            materials.insert((name.clone(), key.clone()), Arc::new(SecretValue::new(value.0)));
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
    fn digest(&self, store: StoreSpec<'_>, namespace: &str, materials: &Materials) -> Result<ContentDigest, Error> {
        let store = serde_json::to_vec(&store)?;
        let of_secrets = materials.iter().map(|((name, key), value)| (format!("{name}/{key}"), value.expose()));
        let of_secrets: Vec<_> = of_secrets.collect();
        let of_secrets = of_secrets.iter().map(|(name, value)| (&**name, *value));
        Ok(self.digest_key.digest(of_secrets.chain([("", &*store), ("/", namespace.as_bytes())])))
    }

    fn connect(&self, name: &ConnectionName, connection: Connection, digest: ContentDigest) {
        self.made_of().insert(name.clone(), digest);
        let source = Arc::clone(&connection.source);
        let before = self.connections.connect(name, Arc::new(connection), &self.bindings.records());
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(&before.source, &source)) {
            close(before);
        }
    }

    fn disconnect(&self, name: &ConnectionName, failure: Failure) {
        self.made_of().remove(name);
        if let Some(before) = self.connections.disconnect(name, failure) {
            close(before);
        }
    }

    fn made_of(&self) -> MutexGuard<'_, HashMap<ConnectionName, ContentDigest>> {
        self.made_of.lock().unwrap_or_else(PoisonError::into_inner)
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

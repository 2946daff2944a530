//! Reading the Secrets of an object in batches that fit into memory, however large the Secrets are.
//!
//! Users decide how large Secrets are and how many of them an object names. So the operator reads, converts and writes the Secrets of separate
//! paths batch by batch, and it does not write a path whose Secrets are too large together. Only a few large objects are in memory at the same
//! time. The other large objects wait for these, and small objects wait for none.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
    vec,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Error, api::GetParams, core::Selector};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use super::Parts;
use crate::{
    bindings::{Binding, Bindings, Push},
    content::{Lack, Sources, Target},
    desired::{Wanted, desired_at},
    error::PushError,
    metrics::Metrics,
    object::{ObjectRef, SecretRef},
    prefetch::Prefetch,
    secrets::{self, Data},
    spec::BinaryPolicy,
};

/// An object that holds more bytes than this waits for a permit.
const SMALL: usize = 256 << 10;

/// The number of large objects in memory at the same time.
const LARGE_AT_ONCE: usize = 2;

/// The size of a batch of separate paths, and the largest total size of the Secrets of one path.
const BATCH: usize = 4 << 20;

/// If fewer Secrets match a selector than before, a second list after this delay must confirm it, because one bad list must not delete
/// data.
pub(super) const FEWER_FOR: Duration = Duration::from_secs(5);

/// The desired content of the paths of an object, by target.
pub(super) type Targets = BTreeMap<String, Target>;

/// Reads Secrets. Clones share the limit of memory.
#[derive(Clone)]
pub(super) struct SecretReader {
    client: Client,
    prefetch: Prefetch,
    bindings: Arc<Bindings>,
    metrics: Metrics,
    permits: MemoryPermits,
    /// How values that are not UTF-8 are written unless the object says.
    binary: BinaryPolicy,
}

/// The permits of large objects. Clones share them.
#[derive(Clone)]
pub(super) struct MemoryPermits(Arc<Semaphore>);

impl Default for MemoryPermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_AT_ONCE)))
    }
}

impl SecretReader {
    pub(super) fn new(parts: &Parts) -> Self {
        Self {
            client: parts.client.clone(),
            prefetch: parts.prefetch.clone(),
            bindings: Arc::clone(&parts.bindings),
            metrics: parts.metrics.clone(),
            permits: MemoryPermits::default(),
            binary: parts.policy.binary,
        }
    }

    /// Resolves the selector of a push to the names of the Secrets that match now. The watch reports later changes.
    pub(super) async fn resolve<'a>(&self, key: &ObjectRef, push: &'a Push) -> Result<Cow<'a, Push>, PushError> {
        let Wanted::Composed(composition) = &push.wanted else { return Ok(Cow::Borrowed(push)) };
        let Some(selector) = composition.selector() else { return Ok(Cow::Borrowed(push)) };
        self.bindings.ask_selected(key);
        let names = self.matching(&key.namespace, selector).await?;
        self.bindings.selected(key, names.clone());
        Ok(Cow::Owned(Push { spec: push.spec.clone(), wanted: Wanted::Composed(composition.of(names)) }))
    }

    async fn matching(&self, namespace: &str, selector: &Selector) -> Result<BTreeSet<String>, PushError> {
        secrets::fitting(&self.client, namespace, selector).await.map_err(|source| PushError::Read {
            what: format!("which secrets of {namespace} are {selector}"),
            source: Box::new(source),
        })
    }

    /// Whether only an empty list of Secrets says that the object, which has content in Vault, wants none of it.
    pub(super) fn is_doubtful(&self, key: &ObjectRef, binding: &Binding, push: &Push) -> bool {
        // A push that names its Secrets names at least one.
        matches!(push.wanted, Wanted::Composed(_))
            && push.wanted.names().is_empty()
            && binding.record.as_ref().is_some_and(|record| !record.paths.is_empty())
            && !self.fewer_is_confirmed(key, binding)
    }

    /// Whether fewer Secrets than before have matched the object's selector for [`FEWER_FOR`], so a second list has confirmed it.
    pub(super) fn fewer_is_confirmed(&self, key: &ObjectRef, binding: &Binding) -> bool {
        let since = binding.pending.fewer.unwrap_or_else(Instant::now);
        let is_confirmed = since.elapsed() >= FEWER_FOR;
        self.bindings.settle(key, binding, |now| now.pending.fewer = (!is_confirmed).then_some(since));
        if !is_confirmed {
            tracing::info!(object = %key, "fewer Secrets match its selector than are in Vault; a second list must confirm that");
        }
        is_confirmed
    }

    /// The batches of an object's Secrets.
    pub(super) fn batches<'a>(&'a self, key: &'a ObjectRef, push: &'a Push) -> SecretBatches<'a> {
        let names: Vec<String> = push.wanted.names().into_iter().map(str::to_owned).collect();
        SecretBatches { reader: self, key, push, left: names.into_iter(), versions: BTreeMap::new(), permit: None }
    }

    /// Returns the version and the data of a Secret. Both are `None` if the Secret does not exist.
    ///
    /// If a watch has shown the Secret, the data comes from the prefetched Secrets, or from a read of that version or a later one. The API
    /// server answers such a read from its memory; without a version it would ask etcd.
    async fn read(&self, secret: &SecretRef) -> Result<(Option<String>, Option<Data>), PushError> {
        let seen = self.bindings.version(secret);
        if let Some(version) = &seen
            && let Some(data) = self.prefetch.fetch(secret, version).await
        {
            return Ok((seen, Some(data)));
        }
        let SecretRef { namespace, name } = secret;
        let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let not_older = GetParams { resource_version: seen };
        let found = match api.get_with(name, &not_older).await {
            Err(Error::Api(status)) if status.is_not_found() => return Ok((None, None)),
            answer => answer.map_err(|source| PushError::Read {
                what: format!("secret {namespace}/{name}"),
                source: Box::new(source),
            })?,
        };
        Ok((found.metadata.resource_version.clone(), Some(secrets::values(found))))
    }
}

/// The desired content of the paths of one object, batch by batch.
pub(super) struct SecretBatches<'a> {
    reader: &'a SecretReader,
    key: &'a ObjectRef,
    push: &'a Push,
    /// The names of the Secrets that are not read yet.
    left: vec::IntoIter<String>,
    /// The versions of the Secrets that were read.
    versions: BTreeMap<String, Option<String>>,
    /// The permit of a large object.
    permit: Option<SemaphorePermit<'a>>,
}

impl SecretBatches<'_> {
    /// Returns the desired content of the next paths. Each Secret is read once. A missing Secret is no error, an unreadable one is.
    pub(super) async fn next(&mut self) -> Result<Targets, PushError> {
        if self.push.wanted.is_apart() {
            return self.separate().await;
        }
        let target = match self.all().await? {
            Ok(sources) => self.desired("", &sources),
            Err(lack) => Target::Keep(lack),
        };
        Ok(Targets::from([(String::new(), target)]))
    }

    /// Whether all Secrets are read.
    pub(super) fn is_over(&self) -> bool {
        self.left.as_slice().is_empty()
    }

    /// A write of this operator gave a Secret that was read another version, with the same content.
    pub(super) fn rename(&mut self, name: &str, from: &str, to: &str) {
        if let Some(version) = self.versions.get_mut(name).filter(|version| version.as_deref() == Some(from)) {
            *version = Some(to.to_owned());
        }
    }

    /// The version of each Secret, `None` for a missing one.
    pub(super) fn versions(self) -> BTreeMap<String, Option<String>> {
        self.versions
    }

    async fn separate(&mut self) -> Result<Targets, PushError> {
        let (mut targets, mut size) = (Targets::new(), 0);
        while size < BATCH
            && let Some(name) = self.left.next()
        {
            let data = self.read(&name).await?;
            self.reserve(size + held(data.as_ref())).await;
            let target = self.desired(&name, &Sources::from([(name.clone(), data)]));
            size += target.size();
            self.reserve(size).await;
            targets.insert(name, target);
        }
        Ok(targets)
    }

    /// Reads all Secrets of a path, unless they are too large together.
    async fn all(&mut self) -> Result<Result<Sources, Lack>, PushError> {
        let (mut sources, mut size) = (Sources::new(), 0);
        while let Some(name) = self.left.next() {
            let data = self.read(&name).await?;
            size += held(data.as_ref());
            if size > BATCH {
                drop(sources);
                for name in self.left.by_ref() {
                    let version = self.reader.bindings.version(&of(self.key, &name));
                    self.versions.insert(name, version);
                }
                return Ok(Err(Lack::LargeSecrets { size, limit: BATCH }));
            }
            self.reserve(size).await;
            sources.insert(name, data);
        }
        Ok(Ok(sources))
    }

    async fn read(&mut self, name: &str) -> Result<Option<Data>, PushError> {
        let secret = of(self.key, name);
        let read = self.reader.read(&secret).await;
        if read.is_err() {
            // A missing Secret is counted with the path that lacks it.
            self.reader.metrics.secret_not_found(&secret.namespace, name);
        }
        let (version, data) = read?;
        self.reader.bindings.secret_was(&secret, version.as_deref());
        self.versions.insert(secret.name, version);
        Ok(data)
    }

    fn desired(&self, beneath: &str, sources: &Sources) -> Target {
        let binary: BinaryPolicy = self.push.spec.binary.unwrap_or(self.reader.binary);
        desired_at(beneath, &self.push.wanted, sources, binary)
    }

    /// Waits until an object of this size may be in memory.
    async fn reserve(&mut self, size: usize) {
        if size > SMALL && self.permit.is_none() {
            // The semaphore is never closed.
            self.permit = self.reader.permits.0.acquire().await.ok();
        }
    }
}

fn of(key: &ObjectRef, name: &str) -> SecretRef {
    SecretRef { namespace: key.namespace.clone(), name: name.to_owned() }
}

/// The size of the keys and values in bytes.
fn held(data: Option<&Data>) -> usize {
    data.into_iter().flatten().map(|(key, value)| key.len() + value.len()).sum()
}

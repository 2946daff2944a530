//! Reading the Secrets of an object in batches that fit into memory, however large the Secrets are.
//!
//! Users decide how large Secrets are and how many of them an object names. So the operator reads, converts and writes the Secrets of separate
//! paths batch by batch, and it does not write a path whose Secrets are too large together. Only a few large objects are in memory at the same
//! time. The other large objects wait for these, and small objects wait for none.

use std::{borrow::Cow, collections::BTreeMap, mem, sync::Arc, vec};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Error, api::GetParams};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    bindings::{Bindings, Push},
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

/// The desired content of the paths of an object, by target.
pub(super) type Targets = BTreeMap<String, Target>;

/// Reads Secrets.
pub(crate) struct SecretReader {
    client: Client,
    prefetch: Prefetch,
    bindings: Arc<Bindings>,
    metrics: Metrics,
    /// How a value that is no text is written, unless the object says it.
    binary: BinaryPolicy,
    /// The permits of large objects.
    permits: Semaphore,
}

impl SecretReader {
    pub(crate) fn new(
        client: Client,
        prefetch: Prefetch,
        bindings: Arc<Bindings>,
        metrics: Metrics,
        binary: BinaryPolicy,
    ) -> Self {
        Self { client, prefetch, bindings, metrics, binary, permits: Semaphore::new(LARGE_AT_ONCE) }
    }

    /// Resolves the selector of a push to the names of the Secrets that match now. The watch reports later changes.
    pub(super) async fn resolve<'a>(&self, key: &ObjectRef, push: &'a Push) -> Result<Cow<'a, Push>, PushError> {
        let Wanted::Composed(composition) = &push.wanted else { return Ok(Cow::Borrowed(push)) };
        let Some(selector) = composition.selector() else { return Ok(Cow::Borrowed(push)) };
        self.bindings.begin_selection(key);
        let names = secrets::fitting(&self.client, &key.namespace, selector).await;
        let what = || format!("which secrets of {} are {selector}", key.namespace);
        let names = names.map_err(|source| PushError::unreadable(what(), source))?;
        self.bindings.selected(key, names.clone());
        Ok(Cow::Owned(Push { spec: push.spec.clone(), wanted: Wanted::Composed(composition.of(names)) }))
    }

    /// The batches of an object's Secrets.
    pub(super) fn batches<'a>(&'a self, key: &'a ObjectRef, push: &'a Push) -> SecretBatches<'a> {
        let names: Vec<String> = push.wanted.names().into_iter().map(str::to_owned).collect();
        let (left, versions) = (names.into_iter(), BTreeMap::new());
        SecretBatches { reader: self, key, push, left, has_begun: false, versions, permit: None }
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
            found => found.map_err(|source| PushError::unreadable(format!("secret {namespace}/{name}"), source))?,
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
    /// Also a push without Secrets has one batch.
    has_begun: bool,
    /// The versions of the Secrets that were read.
    versions: BTreeMap<String, Option<String>>,
    /// The permit of a large object.
    permit: Option<SemaphorePermit<'a>>,
}

impl SecretBatches<'_> {
    /// Returns the desired content of the next paths, or `None` after the last; there is at least one batch. Each Secret is read once. A
    /// missing Secret is no error, an unreadable one is.
    pub(super) async fn next(&mut self) -> Result<Option<Targets>, PushError> {
        if mem::replace(&mut self.has_begun, true) && self.left.as_slice().is_empty() {
            return Ok(None);
        }
        if self.push.wanted.is_apart() {
            return self.separate().await.map(Some);
        }
        let target = match self.all().await? {
            Ok(sources) => self.desired("", &sources),
            Err(lack) => Target::Keep(lack),
        };
        Ok(Some(Targets::from([(String::new(), target)])))
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
                    let version = self.reader.bindings.version(&self.key.secret(&name));
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
        let secret = self.key.secret(name);
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
        let binary = self.push.spec.binary.unwrap_or(self.reader.binary);
        desired_at(beneath, &self.push.wanted, sources, binary)
    }

    /// Waits until an object of this size may be in memory.
    async fn reserve(&mut self, size: usize) {
        if size > SMALL && self.permit.is_none() {
            // The semaphore is never closed.
            self.permit = self.reader.permits.acquire().await.ok();
        }
    }
}

/// The size of the keys and values in bytes.
fn held(data: Option<&Data>) -> usize {
    data.into_iter().flatten().map(|(key, value)| key.len() + value.len()).sum()
}

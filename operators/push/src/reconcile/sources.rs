//! Reading the Secrets that an object names, in portions that fit into memory whatever they hold.
//!
//! Whoever may write Secrets says how large they are, and how many of them an object names. So paths that stand apart are made and written a
//! portion at a time, and a path that is made of too much is not made at all. Of objects that are made of much only a few are worked on at the same time;
//! the others wait for these, and small ones for none.

use std::{
    collections::{BTreeMap, BTreeSet},
    vec,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Error, api::GetParams, core::Selector};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{PushError, Pusher, Targets};
use crate::{
    asked::BinaryPolicy,
    bindings::Push,
    desired::{Lack, Sources, Target, desired_at},
    object::{ObjectRef, SecretRef},
    secrets::{self, Data},
};

/// An object that holds more than this at once waits until it is one of the few that may.
const SMALL: usize = 256 << 10;

/// So many of them at the same time.
const FEW: usize = 2;

/// So much is made of Secrets that stand apart before it is written, and no more is read for one path.
const PORTION: usize = 4 << 20;

/// Where objects that are made of much wait for each other.
pub struct Room(Semaphore);

impl Default for Room {
    fn default() -> Self {
        Self(Semaphore::new(FEW))
    }
}

/// What should be at the paths of an object, portion by portion.
pub(super) struct Portions<'a, 'b> {
    pusher: &'a Pusher,
    key: &'b ObjectRef,
    push: &'b Push,
    /// The names of those that are not read yet.
    left: vec::IntoIter<String>,
    /// In which versions the others were.
    versions: BTreeMap<String, Option<String>>,
    /// Its place among the few.
    place: Option<SemaphorePermit<'a>>,
}

impl<'a, 'b> Portions<'a, 'b> {
    pub(super) fn new(pusher: &'a Pusher, key: &'b ObjectRef, push: &'b Push) -> Self {
        let names: Vec<String> = push.wanted.names().into_iter().map(str::to_owned).collect();
        Self { pusher, key, push, left: names.into_iter(), versions: BTreeMap::new(), place: None }
    }

    /// What should be at the next paths. Each Secret is read once. That one is not there is an answer; that one cannot be read is an error.
    pub(super) async fn next(&mut self) -> Result<Targets, PushError> {
        if self.push.wanted.is_apart() {
            return self.apart().await;
        }
        let target = match self.together().await? {
            Ok(sources) => self.made("", &sources),
            Err(lack) => Target::Keep(lack),
        };
        Ok(Targets::from([(String::new(), target)]))
    }

    /// Whether that was all.
    pub(super) fn is_over(&self) -> bool {
        self.left.as_slice().is_empty()
    }

    /// A Secret that was read in the one version has got the other from us, and the same content.
    pub(super) fn rename(&mut self, name: &str, from: &str, to: &str) {
        if let Some(version) = self.versions.get_mut(name).filter(|version| version.as_deref() == Some(from)) {
            *version = Some(to.to_owned());
        }
    }

    /// In which version each of them was.
    pub(super) fn versions(self) -> BTreeMap<String, Option<String>> {
        self.versions
    }

    async fn apart(&mut self) -> Result<Targets, PushError> {
        let (mut targets, mut size) = (Targets::new(), 0);
        while size < PORTION
            && let Some(name) = self.left.next()
        {
            let data = self.read(&name).await?;
            self.take_place(size + held(data.as_ref())).await;
            let target = self.made(&name, &Sources::from([(name.clone(), data)]));
            size += target.size();
            self.take_place(size).await;
            targets.insert(name, target);
        }
        Ok(targets)
    }

    /// All of them, unless they are too large.
    async fn together(&mut self) -> Result<Result<Sources, Lack>, PushError> {
        let (mut sources, mut size) = (Sources::new(), 0);
        while let Some(name) = self.left.next() {
            let data = self.read(&name).await?;
            size += held(data.as_ref());
            if size > PORTION {
                drop(sources);
                for name in self.left.by_ref() {
                    let version = self.pusher.bindings.version(&of(self.key, &name));
                    self.versions.insert(name, version);
                }
                return Ok(Err(Lack::LargeSecrets { size, limit: PORTION }));
            }
            self.take_place(size).await;
            sources.insert(name, data);
        }
        Ok(Ok(sources))
    }

    async fn read(&mut self, name: &str) -> Result<Option<Data>, PushError> {
        let secret = of(self.key, name);
        let read = self.pusher.read(&secret).await;
        if read.is_err() {
            // That it is not there, and needed, is counted with the path that lacks it.
            self.pusher.metrics.secret_not_found(&secret.namespace, name);
        }
        let (version, data) = read?;
        self.pusher.bindings.secret_was(&secret, version.as_deref());
        self.versions.insert(secret.name, version);
        Ok(data)
    }

    fn made(&self, beneath: &str, sources: &Sources) -> Target {
        let binary: BinaryPolicy = self.push.asked.binary.unwrap_or(self.pusher.policy.binary);
        desired_at(beneath, &self.push.wanted, sources, binary)
    }

    /// Goes on with so much at once when there is room for it.
    async fn take_place(&mut self, size: usize) {
        if size > SMALL && self.place.is_none() {
            // It is never closed.
            self.place = self.pusher.room.0.acquire().await.ok();
        }
    }
}

fn of(key: &ObjectRef, name: &str) -> SecretRef {
    SecretRef { namespace: key.namespace.clone(), name: name.to_owned() }
}

/// How many bytes the keys and values take.
fn held(data: Option<&Data>) -> usize {
    data.into_iter().flatten().map(|(key, value)| key.len() + value.len()).sum()
}

impl Pusher {
    /// The names of the Secrets that fit a selector.
    pub(super) async fn fitting(&self, namespace: &str, selector: &Selector) -> Result<BTreeSet<String>, PushError> {
        secrets::fitting(&self.client, namespace, selector).await.map_err(|source| PushError::Read {
            what: format!("which secrets of {namespace} are {selector}"),
            source: Box::new(source),
        })
    }

    /// The version and what is in it, if it is there.
    ///
    /// One that a watch has shown is taken from what was read ahead, or else read in that version or a later one, which the API server answers
    /// from its memory; without that it would ask etcd.
    async fn read(&self, secret: &SecretRef) -> Result<(Option<String>, Option<Data>), PushError> {
        let seen = self.bindings.version(secret);
        if let Some(version) = &seen
            && let Some(data) = self.ahead.fetch(secret, version).await
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

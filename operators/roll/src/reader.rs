//! Reading a source, once for all workloads that use it, and forgetting its values at once: in the cluster when its watch shows a change, in Vault by one request for
//! each secret and interval.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::OptionFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_apply::{Statement, error::class_of};
use konverge_core::{
    SecretValue,
    backoff::Backoff,
    digest::DigestKey,
    error::{Classify, ErrorClass},
    outage::PROBES,
};
use konverge_runtime::{Action, Priority, Reconciler, Request};
use konverge_vault::{Found, Known, KvVersion, Location, Seen, Vault, VaultError, Watches};
use kube::{Api, Client};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    digest::{Digester, KeyDigests},
    messages,
    object::{SourceKind, SourceRef},
    parts::{Parts, SOURCE},
    reasons,
    time::Time,
    vault::{SecretState, Version, location, whole},
};

/// The pauses after failed reads of content. Requests for versions have pauses of their own.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(5), factor: 2.0, cap: Duration::from_mins(5) };

/// Reads sources.
pub struct Reader {
    /// Reads those in the cluster.
    pub client: Client,
    /// The shared parts.
    pub parts: Arc<Parts>,
    /// Follows what is in Vault, if there is one.
    pub vault: Option<VaultSource>,
}

/// A source could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {source_ref}: {source}")]
pub struct ReadError {
    source_ref: SourceRef,
    source: Box<kube::Error>,
}

impl Classify for ReadError {
    fn class(&self) -> ErrorClass {
        class_of(&self.source)
    }

    fn reason(&self) -> &'static str {
        if self.is_refused() { reasons::FORBIDDEN } else { "SourceUnreadable" }
    }
}

impl ReadError {
    pub(crate) fn new(source: &SourceRef, error: kube::Error) -> Self {
        Self { source_ref: source.clone(), source: Box::new(error) }
    }

    fn is_refused(&self) -> bool {
        self.class() == ErrorClass::Refused
    }
}

impl Reconciler for Reader {
    type Key = SourceRef;
    type Error = ReadError;

    async fn reconcile(&self, request: Request<SourceRef>) -> Result<Action, ReadError> {
        let source = &request.key;
        if source.name.kind.is_in_vault() {
            if let Some(vault) = &self.vault {
                vault.attend(source);
            }
            return Ok(Action::Done);
        }
        let Parts { index, key, queues, source_announcer, metrics, .. } = &*self.parts;
        // It has no user any more.
        if !index.is_used(source) {
            return Ok(Action::Done);
        }
        let digester = key.digester().await;
        index.reading(source);
        let (version, content) = match Self::read(&self.client, source, &digester).await {
            Ok(Some((version, content))) => (version, Some(content)),
            Ok(None) => (None, None),
            Err(error) => return Err(self.failed(source, error)),
        };
        let learned = index.learn(source, version, content, Time::now());
        metrics.checked(learned.changed);
        if let Some(uid) = learned.ran_away {
            source_announcer.announce(source, source.reference(&uid), &messages::ran_away(&source.name));
        }
        queues.workloads.add_all(learned.users, Priority::High, SOURCE);
        Ok(Action::Done)
    }
}

impl Reader {
    /// A run of each user reports that the source may not be read.
    fn failed(&self, source: &SourceRef, error: kube::Error) -> ReadError {
        let error = ReadError::new(source, error);
        self.parts.metrics.unread(error.reason());
        if error.is_refused() {
            let users = self.parts.index.refuse(source, messages::refused(&source.name, &*error.source));
            self.parts.queues.workloads.add_all(users, Priority::Normal, SOURCE);
        }
        error
    }

    /// Its version and the digests of its values; nothing if it is not there.
    pub(crate) async fn read(
        client: &Client,
        source: &SourceRef,
        digester: &Digester,
    ) -> Result<Option<(Option<String>, KeyDigests)>, kube::Error> {
        let (namespace, name) = (&source.namespace, &source.name.name);
        match source.name.kind {
            // It is followed, and not read here.
            SourceKind::Vault | SourceKind::VaultContent | SourceKind::VaultV1 => Ok(None),
            SourceKind::Secret => {
                let found = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await?;
                Ok(found.map(|secret| {
                    let data = secret.data.unwrap_or_default();
                    // Wiped when they are dropped.
                    let values: Vec<_> =
                        data.into_iter().map(|(key, value)| (key, SecretValue::new(value.0))).collect();
                    let content = values.iter().map(|(key, value)| (key.as_str(), value.expose()));
                    (secret.metadata.resource_version, digester.of_content(content))
                }))
            }
            SourceKind::ConfigMap => {
                let found = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(name).await?;
                Ok(found.map(|map| {
                    let (text, binary) = (map.data.unwrap_or_default(), map.binary_data.unwrap_or_default());
                    // The API server lets no key be in both.
                    let text = text.iter().map(|(key, value)| (key.as_str(), value.as_bytes()));
                    let binary = binary.iter().map(|(key, value)| (key.as_str(), value.0.as_slice()));
                    (map.metadata.resource_version, digester.of_content(text.chain(binary)))
                }))
            }
        }
    }
}

/// Follows the secrets in Vault that workloads use. Nothing is requested any more once it is dropped.
pub struct VaultSource {
    follower: Follower,
    followed: Mutex<HashMap<SourceRef, Followed>>,
}

/// A source that is followed, until this is dropped.
struct Followed {
    every: Duration,
    /// Has the state learned once more.
    again: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone)]
struct Follower {
    vault: Vault,
    parts: Arc<Parts>,
    watches: Watches,
}

impl VaultSource {
    /// Nothing is followed yet. To be made within a tokio runtime.
    pub fn new(vault: Vault, parts: Arc<Parts>) -> Self {
        // Its digests are compared within this process only.
        let watches = Watches::new(vault.clone(), DigestKey::new(rand::random()));
        Self { follower: Follower { vault, parts, watches }, followed: Mutex::default() }
    }

    /// Returns the requests for versions.
    pub fn watches(&self) -> &Watches {
        &self.follower.watches
    }

    /// Follows a source at the shortest interval of its triggers, or stops if no workload uses it any more.
    pub fn attend(&self, source: &SourceRef) {
        let index = &self.follower.parts.index;
        let wanted = index.is_used(source).then(|| index.interval(source)).flatten();
        let mut followed = self.followed();
        match (wanted.zip(location(&source.name)), followed.get(source)) {
            // Its users may have been recreated since, and the state of the source with them.
            (Some((every, _)), Some(known)) if known.every == every => known.again.notify_one(),
            (Some((every, location)), _) => {
                let again = Arc::new(Notify::new());
                let task = self.follower.clone().follow(source.clone(), location, every, Arc::clone(&again));
                let task = AbortOnDropHandle::new(tokio::spawn(task));
                followed.insert(source.clone(), Followed { every, again, _task: task });
            }
            (None, _) => drop(followed.remove(source)),
        }
    }

    fn followed(&self) -> MutexGuard<'_, HashMap<SourceRef, Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower {
    async fn follow(self, source: SourceRef, location: Location, every: Duration, woken: Arc<Notify>) {
        let digester = self.parts.key.digester().await;
        loop {
            if source.name.kind == SourceKind::VaultV1 {
                self.until_it_is_kv(&source, &location).await;
            }
            self.follow_kv((&source, &location), every, &woken, &digester).await;
        }
    }

    /// Waits until the engine is known to be KV. An engine without versions is asked for data, and engines other than KV make something new for each
    /// request.
    async fn until_it_is_kv(&self, source: &SourceRef, location: &Location) {
        let mut failures = 0;
        while let Err(error) = self.find_kv(location).await {
            failures += 1;
            self.learn(source, SecretState::failing(&error), None);
            sleep(pause(&error, failures)).await;
        }
    }

    /// Returns an error if the engine is known not to be KV. Vault is asked once in a while for each engine.
    async fn find_kv(&self, location: &Location) -> Result<(), VaultError> {
        let Some(path) = whole(location) else { return Ok(()) };
        self.vault.locate(&path).await.map(drop)
    }

    /// Follows a secret until its engine turns out not to be KV any more.
    async fn follow_kv(
        &self,
        (source, location): (&SourceRef, &Location),
        every: Duration,
        woken: &Notify,
        digester: &Digester,
    ) {
        let mut watch = self.watches.watch(location.clone(), every);
        let (mut failures, mut again) = (0, None);
        loop {
            let known = tokio::select! {
                known = watch.changed() => known,
                Some(()) = OptionFuture::from(again.map(sleep_until)) => watch.known(),
                // After a failure, the next question waits for its pause.
                () = woken.notified(), if again.is_none() => {
                    if !self.parts.index.is_unknown(source) {
                        continue;
                    }
                    watch.known()
                }
            };
            match self.look(source, location, &known, digester).await {
                Ok((state, content)) => {
                    (failures, again) = (0, None);
                    self.learn(source, state, content);
                }
                Err(VaultError::NotKv { .. }) if source.name.kind == SourceKind::VaultV1 => return,
                Err(error) => {
                    failures += 1;
                    again = Some(Instant::now() + pause(&error, failures));
                    self.learn(source, SecretState::failing(&error), None);
                }
            }
        }
    }

    /// Returns the state of a secret, and the digests of the part that counts, if it can be read. Values are read only where they count.
    async fn look(
        &self,
        source: &SourceRef,
        location: &Location,
        known: &Known,
        digester: &Digester,
    ) -> Result<(SecretState, Option<KeyDigests>), VaultError> {
        if let Some(failure) = &known.failure {
            let state = SecretState::failing(failure);
            // A Vault that is away would not answer this either.
            let state = if failure.is_outage() { state } else { self.unless_not_kv(location, state).await };
            return Ok((state, None));
        }
        let state = match &known.seen {
            None => return Ok((SecretState::Unknown, None)),
            Some(Seen::Absent) => return Ok((self.unless_not_kv(location, SecretState::Missing).await, None)),
            Some(Seen::State(state)) => SecretState::of(state),
            Some(Seen::Content(_)) => SecretState::Live(Version::default()),
        };
        match (&state, source.name.kind) {
            (SecretState::Live(version), SourceKind::Vault) => {
                let content = digester.of_version(version);
                Ok((state, Some(content)))
            }
            (SecretState::Live(_), _) => self.read(location, digester).await,
            _ => Ok((state, None)),
        }
    }

    /// Returns the same state, or that the engine is not KV, because the answer of such an engine explains nothing.
    async fn unless_not_kv(&self, location: &Location, state: SecretState) -> SecretState {
        match self.find_kv(location).await {
            Err(error @ VaultError::NotKv { .. }) => SecretState::failing(&error),
            _ => state,
        }
    }

    async fn read(
        &self,
        location: &Location,
        digester: &Digester,
    ) -> Result<(SecretState, Option<KeyDigests>), VaultError> {
        if location.mount().version() == KvVersion::One {
            self.find_kv(location).await?;
        }
        Ok(match self.vault.read(location).await? {
            Found::Absent => (SecretState::Missing, None),
            Found::Deleted(_) => (SecretState::Deleted, None),
            Found::Live(secret) => {
                let version =
                    secret.version.map(|version| Version { number: version.number, created: version.created });
                let values = secret.content.iter().map(|(key, field)| (key, field.bytes()));
                (SecretState::Live(version.unwrap_or_default()), Some(digester.of_content(values)))
            }
        })
    }

    fn learn(&self, source: &SourceRef, state: SecretState, content: Option<KeyDigests>) {
        let parts = &self.parts;
        let is_read = content.is_some();
        let (learned, triggers) = parts.index.learn_vault(source, state, content, Time::now());
        if is_read {
            parts.metrics.checked(learned.changed);
        }
        if learned.ran_away.is_some() {
            let statement = messages::ran_away(&source.name);
            parts.source_announcer.log(source, &statement);
            // A secret in Vault is no object, so the events are about the triggers that follow it.
            let text = format!("{}: {}", source.name, statement.text);
            let statement = Statement { text, ..statement };
            for (trigger, shown) in triggers.iter().filter_map(|key| Some((key, parts.index.trigger(key)?))) {
                parts.source_announcer.publish(trigger.reference(&shown.uid), &statement);
            }
        }
        parts.queues.workloads.add_all(learned.users, Priority::High, SOURCE);
        parts.queues.triggers.add_all(triggers, Priority::Normal, SOURCE);
    }
}

/// The pause after so many failures. A failure of every request may be over at any moment, and no request is sent while Vault is left alone.
fn pause(error: &VaultError, failures: u32) -> Duration {
    let backoff = if error.concerns_every_request() { PROBES } else { BACKOFF };
    backoff.delay(failures, rand::random())
}

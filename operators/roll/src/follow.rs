//! Following secrets in Vault: one question for each however many use it, and none for those that nobody uses.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::OptionFuture;
use konverge_apply::Statement;
use konverge_core::{backoff::Backoff, digest::DigestKey, outage::PROBES};
use konverge_runtime::Priority;
use konverge_vault::{Found, Known, KvVersion, Location, Seen, Vault, VaultError, Watches};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    digest::{Digester, KeyDigests},
    messages,
    object::{SourceKind, SourceRef},
    parts::Parts,
    time::Time,
    vault::{SecretState, Version, location, standing, whole},
    wakeups::SOURCE,
};

/// After reads of content that failed; questions for versions have pauses of their own.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(5), factor: 2.0, cap: Duration::from_mins(5) };

/// Follows what is used of Vault. Nothing is asked any more once it is dropped.
pub struct VaultSource {
    follower: Follower,
    followed: Mutex<HashMap<SourceRef, Followed>>,
}

/// A source that is followed, until this is dropped.
struct Followed {
    every: Duration,
    /// Has it told once more how it stands.
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

    /// The questions for versions.
    pub fn watches(&self) -> &Watches {
        &self.follower.watches
    }

    /// Follows the source if anybody uses it, at the interval that is wanted now, and else does not.
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
    async fn follow(self, source: SourceRef, location: Location, every: Duration, asked: Arc<Notify>) {
        let digester = self.parts.key.digester().await;
        loop {
            if source.name.kind == SourceKind::VaultV1 {
                self.until_it_is_kv(&source, &location).await;
            }
            self.follow_kv((&source, &location), every, &asked, &digester).await;
        }
    }

    /// Where an engine has no versions its data are asked for, and others than KV make something new for each question. So they are asked for
    /// nothing.
    async fn until_it_is_kv(&self, source: &SourceRef, location: &Location) {
        let mut failures = 0;
        while let Err(error) = self.find_kv(location).await {
            failures += 1;
            self.learn(source, SecretState::failing(&error), None);
            sleep(pause(&error, failures)).await;
        }
    }

    /// An error if the engine is known to be none of KV. Vault is asked once in a while for each engine.
    async fn find_kv(&self, location: &Location) -> Result<(), VaultError> {
        let Some(path) = whole(location) else { return Ok(()) };
        self.vault.locate(&path).await.map(drop)
    }

    /// Until it turns out to be in no engine of KV any more.
    async fn follow_kv(
        &self,
        (source, location): (&SourceRef, &Location),
        every: Duration,
        asked: &Notify,
        digester: &Digester,
    ) {
        let mut watch = self.watches.watch(location.clone(), every);
        let (mut failures, mut again) = (0, None);
        loop {
            let known = tokio::select! {
                known = watch.changed() => known,
                Some(()) = OptionFuture::from(again.map(sleep_until)) => watch.known(),
                // After a failure, the next question waits for its pause.
                () = asked.notified(), if again.is_none() => {
                    if !self.parts.index.is_unknown(source) {
                        continue;
                    }
                    watch.known()
                }
            };
            match self.look(source, location, &known, digester).await {
                Ok((standing, content)) => {
                    (failures, again) = (0, None);
                    self.learn(source, standing, content);
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

    /// How it stands, and digests of what counts, if that can be told. Values are read only where they count.
    async fn look(
        &self,
        source: &SourceRef,
        location: &Location,
        known: &Known,
        digester: &Digester,
    ) -> Result<(SecretState, Option<KeyDigests>), VaultError> {
        if let Some(failure) = &known.failure {
            let standing = SecretState::failing(failure);
            // A Vault that is away would not answer this either.
            let standing = if failure.is_outage() { standing } else { self.why_not(location, standing).await };
            return Ok((standing, None));
        }
        let standing = match &known.seen {
            None => return Ok((SecretState::Unknown, None)),
            Some(Seen::Absent) => return Ok((self.why_not(location, SecretState::Missing).await, None)),
            Some(Seen::State(state)) => standing(state),
            Some(Seen::Content(_)) => SecretState::Live(Version::default()),
        };
        match (&standing, source.name.kind) {
            (SecretState::Live(version), SourceKind::Vault) => {
                let content = digester.of_version(version);
                Ok((standing, Some(content)))
            }
            (SecretState::Live(_), _) => self.read(location, digester).await,
            _ => Ok((standing, None)),
        }
    }

    /// Returns the same, or that the engine is not KV, because the answer of such an engine explains nothing.
    async fn why_not(&self, location: &Location, standing: SecretState) -> SecretState {
        match self.find_kv(location).await {
            Err(error @ VaultError::NotKv { .. }) => SecretState::failing(&error),
            _ => standing,
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

    fn learn(&self, source: &SourceRef, standing: SecretState, content: Option<KeyDigests>) {
        let parts = &self.parts;
        let is_read = content.is_some();
        let (learned, triggers) = parts.index.learn_vault(source, standing, content, Time::now());
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

//! Vault and `OpenBao`: secrets of KV engines of both versions.
//!
//! pull asks Vault for the metadata of each path once in an interval, however many Secrets name it, and reads each new version once. It reads a pinned
//! version once in an interval instead, because a watch only tells of the newest version.

mod flags;

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::OptionFuture;
use k8s_openapi::jiff::Timestamp;
use konverge_apply::Statement;
use konverge_core::{
    digest::DigestKey,
    error::{Classify, in_one_line},
};
use konverge_vault::{
    Content, Found, Known, KvVersion, Location, Secret, SecretPath, Seen, Vault, VaultError, VersionState, Watch,
    Watches,
};
use tokio::time::{Instant, sleep};

pub use self::flags::VaultFlags;
use crate::{
    hub::{Failures, Feed, SHORTEST_PAUSE},
    messages::{self, failure},
    reasons,
    source::{Cause, Failure, Reference, Revision, Snapshot, Source, Succession, Upstream},
};

/// The scheme of references to secrets.
pub const SCHEME: &str = "vault";

/// A watch notices a change within 1.1 of its intervals.
const WATCH_SPREAD: f64 = 1.1;

/// One Vault, with one login.
pub struct VaultSource {
    vault: Vault,
    watches: Watches,
    interval: Duration,
}

impl VaultSource {
    /// Asks for each path at least once in the interval. To be called within a tokio runtime.
    pub fn new(vault: Vault, interval: Duration) -> Self {
        let watches = Watches::new(vault.clone(), DigestKey::new(rand::random()));
        Self { vault, watches, interval }
    }
}

#[async_trait]
impl Source for VaultSource {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn open(&self, reference: &Reference) -> Result<Box<dyn Upstream>, Statement> {
        Ok(Box::new(Path {
            name: path(reference)?,
            version: reference.version(),
            vault: self.vault.clone(),
            watches: self.watches.clone(),
            interval: self.interval,
            state: Mutex::default(),
        }))
    }

    async fn check(&self) -> Result<(), Statement> {
        let let_in = self.vault.log_in().await;
        let_in.map_err(|error| failure(class(&error).0, in_one_line(&error)))
    }

    async fn close(&self) {
        self.vault.close().await;
    }
}

/// Returns the path that a reference names: the mount, and the name of the secret in it, without `data/` between.
fn path(reference: &Reference) -> Result<SecretPath, Statement> {
    let segments: Vec<_> = reference.segments().collect();
    if segments.iter().any(|segment| segment.contains('/')) {
        return Err(messages::invalid_annotation(&format!(
            "{reference} has an encoded slash, which no path in Vault has"
        )));
    }
    SecretPath::parse(&segments.join("/")).map_err(|error| messages::invalid_annotation(&error.to_string()))
}

/// A secret, or one version of it.
struct Path {
    name: SecretPath,
    version: Option<u64>,
    vault: Vault,
    watches: Watches,
    interval: Duration,
    state: Mutex<State>,
}

/// What the last read and the watch have told.
#[derive(Default)]
struct State {
    /// The version that was read last. `None` before the first read, and in an engine of version 1.
    read: Option<VersionState>,
    /// An interest in the path, to look up when the watch last had an answer.
    watch: Option<Watch>,
}

#[async_trait]
impl Upstream for Path {
    async fn fetch(&self) -> Result<Snapshot, Failure> {
        let location = self.locate().await?;
        let found = self.vault.read_version(&location, self.version).await.map_err(|error| failed(&error))?;
        let secret = match found {
            Found::Live(secret) => secret,
            Found::Deleted(version) => return Err(deleted(&location, &version)),
            Found::Absent => return Err(absent(&location, self.version)),
        };
        self.accept_version(&location, secret.version.as_ref())?;
        Ok(snapshot(secret))
    }

    async fn follow(&self, feed: Feed) {
        if self.version.is_some() {
            return feed.poll(self.interval).await;
        }
        let every = self.interval.div_f64(WATCH_SPREAD);
        let (mut watch, mut failures): (Option<Watch>, _) = (None, Failures::default());
        loop {
            // An engine may be moved. The client asks Vault again after some minutes.
            let location = self.locate().await.ok();
            if watch.as_ref().map(Watch::location) != location.as_ref() {
                self.state().watch = location.clone().map(|location| self.watches.watch(location, every));
                watch = location.map(|location| self.watches.watch(location, every));
            }
            feed.look().await;
            let known = watch.as_ref().map(Watch::known).unwrap_or_default();
            let lags = self.newer_version(&known).is_some();
            let cause = feed.failure().map(|failure| failure.cause).or_else(|| lags.then_some(Cause::Broken));
            failures = if cause.is_some() { failures } else { Failures::default() };
            let mut pause = cause.map(|cause| {
                failures.count(Some(cause));
                failures.pause(rand::random())
            });
            loop {
                tokio::select! {
                    Some(known) = OptionFuture::from(watch.as_mut().map(Watch::changed)) => {
                        match self.newer_version(&known).filter(|_| feed.failure().is_none()) {
                            Some(number) => {
                                // The workers read it, once for all. A server that lags behind may give them the former version.
                                feed.changed(number);
                                pause = Some(SHORTEST_PAUSE);
                            }
                            None if feed.failure().is_some() || self.is_news(&known) => break,
                            None => {}
                        }
                    }
                    Some(()) = OptionFuture::from(pause.map(sleep)) => {
                        let known = watch.as_ref().map(Watch::known).unwrap_or_default();
                        if feed.failure().is_some() || self.newer_version(&known).is_some() {
                            break;
                        }
                        pause = None;
                    }
                    () = feed.failed() => {
                        pause.get_or_insert(SHORTEST_PAUSE);
                    }
                    () = feed.wanted() => pause = Some(SHORTEST_PAUSE),
                }
            }
        }
    }

    fn answered(&self) -> Option<Instant> {
        self.state().watch.as_ref()?.known().verified
    }

    fn record(&self, snapshot: &Snapshot) -> Option<String> {
        let Revision { identity, number, .. } = &snapshot.revision;
        // A pinned version never goes back, and an engine of version 1 has no versions.
        (self.version.is_none() && !identity.is_empty()).then(|| format!("version {number} of {identity}"))
    }

    fn recorded(&self, record: &str) -> Option<Revision> {
        let (number, identity) = record.strip_prefix("version ")?.split_once(" of ")?;
        Some(Revision { identity: identity.to_owned(), number: number.parse().ok()?, fingerprint: None })
    }
}

impl Path {
    /// Returns where Vault has the path.
    async fn locate(&self) -> Result<Location, Failure> {
        let location = self.vault.locate(&self.name).await.map_err(|error| failed(&error))?;
        let (mount, name) = (location.mount().path(), location.name());
        // Rules are about the spelling in the reference, so each secret has one.
        if format!("{mount}/{name}") != self.name.as_str() {
            let cause = format!("the secret has the name {SCHEME}://{mount}/{name}, without data/ behind the mount");
            let statement = messages::invalid_annotation(&cause);
            return Err(Failure { statement, kind: "OtherSpelling", cause: Cause::Refused });
        }
        if self.version.is_some() && location.mount().version() == KvVersion::One {
            let statement =
                messages::invalid_annotation(&format!("{mount} is a KV engine of version 1, which keeps no versions"));
            return Err(Failure { statement, kind: "Unversioned", cause: Cause::Refused });
        }
        Ok(location)
    }

    /// Remembers the version that was read. Refuses one that is certainly older than the one before.
    fn accept_version(&self, location: &Location, version: Option<&VersionState>) -> Result<(), Failure> {
        let mut state = self.state();
        if let (Some(version), Some(read)) = (version, &state.read)
            && version.is_before(read)
        {
            return Err(went_back(location, version, read));
        }
        state.read = version.cloned();
        Ok(())
    }

    /// Returns whether the watch has seen another state than the one that was read.
    fn is_news(&self, known: &Known) -> bool {
        let read = self.state().read.clone();
        let is_read = match (&known.seen, read) {
            (Some(Seen::State(seen)), Some(read)) => {
                let is_live = !seen.deleted && !seen.destroyed;
                is_live && (seen.version, &seen.version_created) == (read.number, &read.created)
            }
            _ => false,
        };
        known.failure.is_some() || !is_read
    }

    /// Returns the number of a version that the watch has seen and that is newer than the one that was read.
    fn newer_version(&self, known: &Known) -> Option<i64> {
        let (Some(Seen::State(seen)), Some(read)) = (&known.seen, &self.state().read) else { return None };
        let is_newer = !seen.deleted && !seen.destroyed && seen.version > read.number && known.failure.is_none();
        is_newer.then(|| seen.version.try_into().unwrap_or(i64::MAX))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a secret as a content of any store.
fn snapshot(secret: Secret) -> Snapshot {
    let Secret { content, version } = secret;
    // A version that was written again after its metadata were deleted has the same number and another time.
    let (number, created) = version.map_or((0, String::new()), |version| (version.number, version.created));
    let fingerprint = if created.is_empty() { fingerprint(&content) } else { HASHER.hash_one(&created) };
    // With as many digits as each other time, times sort as texts do.
    let identity = created.parse::<Timestamp>().map_or(created, |created| format!("{created:.9}"));
    Snapshot {
        revision: Revision { identity, number: number.try_into().unwrap_or(i64::MAX), fingerprint: Some(fingerprint) },
        succession: Succession::NotEarlier,
        tag: None,
        remark: None,
        values: content.into_values(),
        failed: Vec::new(),
    }
}

/// Returns the fingerprint of a secret without versions.
fn fingerprint(content: &Content) -> u64 {
    HASHER.hash_one(content.iter().map(|(key, field)| (key, field.bytes())).collect::<Vec<_>>())
}

/// Hashes with a random key of this process, so nobody can look for content with the same hash.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Returns a statement that no longer holds when Vault answers otherwise, even if neither the Secret nor the content has changed.
fn statement(reason: &'static str, text: &str) -> Statement {
    Statement { is_passing: true, ..failure(reason, format!("{text}. The data stays as it is")) }
}

fn refused(kind: &'static str, reason: &'static str, text: &str) -> Failure {
    Failure { statement: statement(reason, text), kind, cause: Cause::Refused }
}

fn absent(location: &Location, version: Option<u64>) -> Failure {
    let text = match version {
        Some(version) => format!("Vault has no version {version} of {location}"),
        None => format!("Vault has no secret {location}"),
    };
    refused("Absent", reasons::SECRET_NOT_FOUND, &text)
}

fn deleted(location: &Location, version: &VersionState) -> Failure {
    let (how, next) = if version.destroyed {
        ("destroyed", "write a new version".to_owned())
    } else {
        ("deleted", format!("undelete it (vault kv undelete -versions={}), or write a new version", version.number))
    };
    let text = format!("version {} of {location} is {how} in Vault; {next}", version.number);
    refused("Deleted", reasons::VERSION_DELETED, &text)
}

fn went_back(location: &Location, version: &VersionState, read: &VersionState) -> Failure {
    let text = format!(
        "Vault states version {} of {location} of {} and version {} of {} was read before; a server that lags behind catches up by itself. After an \
         intended restore of Vault from a backup, write the secret in Vault again",
        version.number, version.created, read.number, read.created
    );
    Failure { cause: Cause::Broken, ..refused("WentBack", reasons::SOURCE_WENT_BACK, &text) }
}

/// Returns what an error of the client shows of Vault.
fn failed(error: &VaultError) -> Failure {
    let (reason, cause) = class(error);
    Failure { statement: statement(reason, &in_one_line(error)), kind: error.reason(), cause }
}

fn class(error: &VaultError) -> (&'static str, Cause) {
    match error {
        VaultError::Garbage { .. } | VaultError::Rejected { .. } | VaultError::TooLarge { .. } => {
            (reasons::BAD_SERVER_ANSWER, Cause::Broken)
        }
        error if error.is_outage() => (reasons::SERVER_UNREACHABLE, Cause::Unreachable),
        VaultError::Denied { .. } => (reasons::PERMISSION_DENIED, Cause::Refused),
        VaultError::NoMount { .. } | VaultError::UnknownMount { .. } | VaultError::NotKv { .. } => {
            (reasons::SECRET_NOT_FOUND, Cause::Refused)
        }
        VaultError::Path(_) | VaultError::Unversioned { .. } => (reasons::INVALID_ANNOTATION, Cause::Refused),
        VaultError::Login { .. } | VaultError::LoginRefused { .. } | VaultError::Credential { .. } => {
            (reasons::CREDENTIALS_INVALID, Cause::Refused)
        }
        _ => (reasons::BAD_SERVER_ANSWER, Cause::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_the_path_that_vault_shows() {
        let path = |text: &str| path(&text.parse().unwrap()).map(|path| path.as_str().to_owned());
        assert_eq!(path("vault://secret/team-a/db?version=3").unwrap(), "secret/team-a/db");
        assert_eq!(path("vault://team/kv/a%20b").unwrap(), "team/kv/a b");
        for text in [
            "vault://secret",
            "vault://sys/raw",
            "vault://auth/token/lookup",
            "vault://a%2Fb/c",
            "vault://secret/a%2F..%2Fb",
        ] {
            assert!(path(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_failure_names_its_reason_and_keeps_the_data() {
        let what = || "read secret/data/db".to_owned();
        for (error, reason, cause) in [
            (
                VaultError::Denied { what: what(), capability: "read", cause: String::new() },
                reasons::PERMISSION_DENIED,
                Cause::Refused,
            ),
            (VaultError::NoMount { what: what() }, reasons::SECRET_NOT_FOUND, Cause::Refused),
            (VaultError::Sealed { what: what(), address: "v".into() }, reasons::SERVER_UNREACHABLE, Cause::Unreachable),
            (VaultError::Limited { what: what(), retry_after: None }, reasons::SERVER_UNREACHABLE, Cause::Unreachable),
            (
                VaultError::LoginRefused { status: 403, cause: String::new() },
                reasons::CREDENTIALS_INVALID,
                Cause::Refused,
            ),
        ] {
            let failure = failed(&error);
            assert_eq!((failure.statement.reason, failure.cause), (reason, cause), "{error}");
            assert!(failure.statement.text.ends_with(". The data stays as it is"), "{failure}");
            assert!(failure.statement.is_passing, "{failure}");
        }
    }
}

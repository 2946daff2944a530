//! One environment's values, decrypted: fetch all, and watch for changes.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use futures::{Stream, StreamExt};
use konverge_core::SecretValue;
use konverge_zopp_crypto::{Dek, EnvironmentName, OpenError};
use konverge_zopp_proto::{
    Environment, GetEnvironmentRequest, GetSecretRequest, ListSecretsRequest, SecretList, WatchSecretsRequest,
    WatchSecretsResponse,
    secret_change_event::EventType,
    secrets::{EncryptedSecret, ReadEnvironmentRequest, ReadEnvironmentResponse, ReadSecretRequest},
    watch_secrets_response::Response,
};
use tonic::Code;

use crate::{
    client::Client,
    error::CallError,
    fetch_error::FetchError,
    keys::refuse_ambiguous,
    manifest::{self, Extent, ManifestFault, Proof},
    server_record::ManifestPin,
};

/// A fetch gives up after this many lists, each of another environment: no honest server has so many in so short a time.
const MOST_LISTS: usize = 5;

/// Stands for the keys of an environment and the nonces of their values: equal content has equal fingerprints, other content almost certainly
/// has another. Each value that is set gets a new nonce. Comparable within one process only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentFingerprint(u64);

impl ContentFingerprint {
    /// Returns the fingerprint of keys and nonces, in whichever order they come.
    pub fn of<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        // The server does not know the key of this hash, so it cannot look for content with the same fingerprint.
        static HASHER: OnceLock<RandomState> = OnceLock::new();
        let ordered: BTreeMap<&str, &[u8]> = secrets.into_iter().collect();
        Self(HASHER.get_or_init(RandomState::new).hash_one(ordered))
    }

    /// Returns the fingerprint as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// All values of an environment at one version.
pub struct Snapshot {
    /// The environment's id. Another id under the same name means that it was deleted and made again.
    pub environment_id: String,
    /// The version the server stated: the values are at least as new.
    pub version: i64,
    /// Tells content of this version from other content of the same version, as after a server lost changes.
    pub content: ContentFingerprint,
    /// Stands for this state of the environment, if the server has such a thing. See [`EnvironmentReader::is_current`].
    pub tag: Option<String>,
    /// Whether a manifest shows that this is the whole environment.
    pub proven: bool,
    /// The serial of the manifest, if there is one.
    pub serial: Option<u64>,
    /// Key to value.
    pub values: BTreeMap<String, SecretValue>,
    /// Keys whose values cannot be decrypted, and why; the texts hold no value. They exist upstream all the same.
    pub failed: Vec<(String, String)>,
}

/// One message of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// Changes were missed: fetch everything. The server may end the stream after it.
    Resync {
        /// The environment's version now.
        version: i64,
    },
    /// One key changed.
    Changed {
        /// The key.
        key: String,
        /// The environment's version after the change.
        version: i64,
        /// Whether it is gone.
        deleted: bool,
    },
}

/// Reads one environment. Clones share the cached key, which is fetched again when it no longer fits.
#[derive(Clone)]
pub struct EnvironmentReader {
    client: Client,
    name: EnvironmentName,
    /// Never locked while something is awaited: fetches at the same time may both unwrap the key, which costs them calls and no more.
    cache: Arc<Mutex<Option<Arc<CachedKey>>>>,
}

/// A data key and what it was unwrapped from: a re-created environment has another id, a rewrapped key other bytes.
struct CachedKey {
    environment_id: String,
    wrapped: Vec<u8>,
    nonce: Vec<u8>,
    dek: Dek,
    /// The newest version seen under this key; one that goes back means another environment under the same name.
    version: AtomicI64,
}

impl EnvironmentReader {
    /// Nothing is sent before the first fetch or watch.
    pub fn new(client: Client, name: EnvironmentName) -> Self {
        Self { client, name, cache: Arc::new(Mutex::new(None)) }
    }

    /// The environment's name.
    pub fn name(&self) -> &EnvironmentName {
        &self.name
    }

    /// All values, at least as new as the version it states, and checked against the manifest. A value that cannot be decrypted is reported
    /// beside the others and fails nothing. One call, and one more for a new key.
    ///
    /// # Errors
    /// [`FetchError::NotCurrent`] if the manifest shows another state, and everything by which a call can fail.
    pub async fn fetch(&self) -> Result<Snapshot, FetchError> {
        let Some(answer) = self.read(None, false).await? else {
            return self.fetch_by_contract().await;
        };
        let (key, proof) = self.prove(&answer, Extent::Whole).await?;
        let mut snapshot = Snapshot {
            environment_id: answer.environment_id,
            version: answer.version,
            content: ContentFingerprint::of(answer.secrets.iter().map(|secret| (secret.key.as_str(), &*secret.nonce))),
            tag: Some(answer.tag),
            proven: matches!(proof, Proof::Proven(_)),
            serial: proof.manifest().map(|manifest| manifest.serial),
            values: BTreeMap::new(),
            failed: Vec::new(),
        };
        for secret in answer.secrets {
            snapshot.add(&key.dek, &self.name, secret.key, &secret.nonce, &secret.ciphertext);
        }
        Ok(snapshot)
    }

    /// The keys without their values, and the version that they make up; checked as by [`EnvironmentReader::fetch`]. Without a manifest
    /// the workspace's key is not needed.
    ///
    /// # Errors
    /// As [`EnvironmentReader::fetch`].
    pub async fn keys(&self) -> Result<(i64, Vec<String>), FetchError> {
        let Some(answer) = self.read(None, true).await? else {
            let list = self.list().await?;
            return Ok((list.version, list.secrets.into_iter().map(|secret| secret.key).collect()));
        };
        let is_required = self.client.connection().requires_manifest();
        if answer.manifest.is_some() || self.seen().is_some() || is_required {
            self.prove(&answer, Extent::Whole).await?;
        }
        Ok((answer.version, answer.secrets.into_iter().map(|secret| secret.key).collect()))
    }

    /// One value, checked as by [`EnvironmentReader::fetch`]; `None` if there is no such key. The inner error is that of a value that cannot be
    /// decrypted.
    ///
    /// # Errors
    /// As [`EnvironmentReader::fetch`].
    pub async fn get(&self, key: &str) -> Result<Option<Result<SecretValue, OpenError>>, FetchError> {
        refuse_ambiguous(&self.name).map_err(|error| FetchError::from_key_access(&self.name, error))?;
        let EnvironmentName { workspace, project, environment } = self.name.clone();
        let request = ReadSecretRequest {
            workspace_name: workspace,
            project_name: project,
            environment_name: environment,
            key: key.to_owned(),
        };
        if let Some(answer) = self.own_answer(self.client.read_secret(request)).await? {
            let (key_of_environment, _) = self.prove(&answer, Extent::Key(key)).await?;
            let dek = &key_of_environment.dek;
            let secret = answer.secrets.into_iter().find(|secret| secret.key == key);
            let value = |EncryptedSecret { nonce, ciphertext, .. }| dek.decrypt(&self.name, key, &nonce, &ciphertext);
            return Ok(secret.map(value));
        }
        let EnvironmentName { workspace, project, environment } = self.name.clone();
        let request = GetSecretRequest {
            workspace_name: workspace,
            project_name: project,
            environment_name: environment,
            key: key.to_owned(),
        };
        let secret = self.client.get_secret(request).await.map_err(|error| self.failed(error))?;
        let key_of_environment = self.unwrap_key(self.environment().await?).await?;
        Ok(Some(key_of_environment.dek.decrypt(&self.name, key, &secret.nonce, &secret.ciphertext)))
    }

    /// Whether this still is the state of the environment, at the price of one small call. `false` if the server cannot tell.
    ///
    /// # Errors
    /// As any call.
    pub async fn is_current(&self, tag: &str) -> Result<bool, FetchError> {
        let answer = self.read(Some(tag.to_owned()), true).await?;
        Ok(answer.is_some_and(|answer| answer.unchanged && answer.tag == tag))
    }

    /// Reads by the contract's calls. One call when the key is known and opens a value, else up to four more, and as many again for each
    /// time that the environment is made anew meanwhile.
    async fn fetch_by_contract(&self) -> Result<Snapshot, FetchError> {
        let cached = self.cached().clone();
        let mut key = match cached {
            Some(key) => key,
            None => Arc::new(self.unwrap_key(self.environment().await?).await?),
        };
        for attempt in 0..MOST_LISTS {
            let snapshot = self.snapshot(&key).await?;
            if !key.is_proven_by(&snapshot) {
                // If the id is the same before and after the list, the list is of that environment.
                let environment = self.environment().await?;
                let is_same = environment.id == key.environment_id;
                // A value that even a key read for this fetch does not open is damaged; an older key may have been replaced.
                let is_newest_key = attempt > 0 || snapshot.failed.is_empty() || key.fits(&environment);
                if !(is_same && is_newest_key) {
                    key = Arc::new(self.unwrap_key(environment).await?);
                    continue;
                }
            }
            key.version.fetch_max(snapshot.version, Ordering::Relaxed);
            *self.cached() = Some(key);
            return Ok(snapshot);
        }
        let source = CallError::Garbage {
            rpc: "GetEnvironment",
            server: self.client.connection().server().into(),
            code: Code::Aborted,
            reason: "another environment each time it is asked for".to_owned(),
        };
        Err(self.failed(source))
    }

    /// The changes from now on. With `since_version`, some servers send [`WatchEvent::Resync`] if there were changes since. Others do not, so a
    /// client that needs every change fetches once the watch is open.
    pub async fn watch(
        &self,
        since_version: Option<i64>,
    ) -> Result<impl Stream<Item = Result<WatchEvent, FetchError>> + Send + use<>, FetchError> {
        let name = self.name.clone();
        let request = WatchSecretsRequest {
            workspace_name: name.workspace.clone(),
            project_name: name.project.clone(),
            environment_name: name.environment.clone(),
            since_version,
        };
        let stream = self.client.watch_secrets(request).await.map_err(|error| FetchError::from_call(&name, error))?;
        Ok(stream.filter_map(move |answer| {
            let event = match answer {
                Ok(answer) => event(answer).map(Ok),
                Err(error) => Some(Err(FetchError::from_call(&name, error))),
            };
            std::future::ready(event)
        }))
    }

    /// The answer of our own call; `None` from a server that does not know it.
    async fn read(
        &self,
        known_tag: Option<String>,
        without_ciphertexts: bool,
    ) -> Result<Option<ReadEnvironmentResponse>, FetchError> {
        refuse_ambiguous(&self.name).map_err(|error| FetchError::from_key_access(&self.name, error))?;
        let EnvironmentName { workspace, project, environment } = self.name.clone();
        let request = ReadEnvironmentRequest {
            workspace_name: workspace,
            project_name: project,
            environment_name: environment,
            known_tag,
            without_ciphertexts,
        };
        self.own_answer(self.client.read_environment(request)).await
    }

    /// The answer of a call of our own; `None` from a server that does not know it, unless this client has seen a manifest by it.
    async fn own_answer(
        &self,
        call: impl Future<Output = Result<ReadEnvironmentResponse, CallError>>,
    ) -> Result<Option<ReadEnvironmentResponse>, FetchError> {
        let connection = self.client.connection();
        if connection.may_know_own_calls() {
            match call.await {
                Err(error) if error.is_unknown_call() => connection.own_calls_are_unknown(),
                answer => return answer.map(Some).map_err(|error| self.failed(error)),
            }
        }
        self.may_lack_manifest().map_err(|fault| self.not_current(fault))?;
        Ok(None)
    }

    /// Checks an answer, remembers its manifest, and returns the key that opens its values.
    async fn prove(
        &self,
        answer: &ReadEnvironmentResponse,
        extent: Extent<'_>,
    ) -> Result<(Arc<CachedKey>, Proof), FetchError> {
        let environment = Environment {
            id: answer.environment_id.clone(),
            dek_wrapped: answer.dek_wrapped.clone(),
            dek_nonce: answer.dek_nonce.clone(),
            ..Environment::default()
        };
        let cached = self.cached().clone().filter(|key| key.fits(&environment));
        let key = match cached {
            Some(key) => key,
            None => Arc::new(self.unwrap_key(environment).await?),
        };
        let proof = manifest::check(self.seen().as_ref(), &key.dek, &self.name, answer, extent);
        let proof = proof.map_err(|fault| self.not_current(fault))?;
        match proof.pin() {
            Some(pin) => self.client.connection().trust().saw_manifest(&self.name, pin),
            None => self.may_lack_manifest().map_err(|fault| self.not_current(fault))?,
        }
        *self.cached() = Some(Arc::clone(&key));
        Ok((key, proof))
    }

    /// Refuses an environment without a manifest if one was seen before, or if one is required.
    fn may_lack_manifest(&self) -> Result<(), ManifestFault> {
        if self.seen().is_some() {
            return Err(ManifestFault::Missing);
        }
        if self.client.connection().requires_manifest() {
            return Err(ManifestFault::Required);
        }
        Ok(())
    }

    /// The newest manifest that was seen.
    fn seen(&self) -> Option<ManifestPin> {
        self.client.connection().trust().manifest(&self.name)
    }

    fn not_current(&self, source: ManifestFault) -> FetchError {
        FetchError::NotCurrent { environment: self.name.clone(), source }
    }

    fn cached(&self) -> MutexGuard<'_, Option<Arc<CachedKey>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn environment(&self) -> Result<Environment, FetchError> {
        let request = GetEnvironmentRequest {
            workspace_name: self.name.workspace.clone(),
            project_name: self.name.project.clone(),
            environment_name: self.name.environment.clone(),
        };
        self.client.get_environment(request).await.map_err(|error| self.failed(error))
    }

    async fn unwrap_key(&self, environment: Environment) -> Result<CachedKey, FetchError> {
        let dek = self.client.unwrap_environment_key(&self.name, &environment).await;
        let dek = dek.map_err(|error| FetchError::from_key_access(&self.name, error))?;
        Ok(CachedKey {
            environment_id: environment.id,
            wrapped: environment.dek_wrapped,
            nonce: environment.dek_nonce,
            dek,
            version: AtomicI64::new(i64::MIN),
        })
    }

    async fn list(&self) -> Result<SecretList, FetchError> {
        let request = ListSecretsRequest {
            workspace_name: self.name.workspace.clone(),
            project_name: self.name.project.clone(),
            environment_name: self.name.environment.clone(),
        };
        self.client.list_secrets(request).await.map_err(|error| self.failed(error))
    }

    async fn snapshot(&self, key: &CachedKey) -> Result<Snapshot, FetchError> {
        let list = self.list().await?;
        let mut snapshot = Snapshot {
            environment_id: key.environment_id.clone(),
            version: list.version,
            content: ContentFingerprint::of(list.secrets.iter().map(|secret| (secret.key.as_str(), &*secret.nonce))),
            tag: None,
            proven: false,
            serial: None,
            values: BTreeMap::new(),
            failed: Vec::new(),
        };
        for secret in list.secrets {
            snapshot.add(&key.dek, &self.name, secret.key, &secret.nonce, &secret.ciphertext);
        }
        Ok(snapshot)
    }

    fn failed(&self, error: CallError) -> FetchError {
        FetchError::from_call(&self.name, error)
    }
}

impl Snapshot {
    /// Decrypts one value, or notes why it cannot be.
    fn add(&mut self, dek: &Dek, name: &EnvironmentName, key: String, nonce: &[u8], ciphertext: &[u8]) {
        match dek.decrypt(name, &key, nonce, ciphertext) {
            Ok(value) => drop(self.values.insert(key, value)),
            Err(error) => self.failed.push((key, error.to_string())),
        }
    }
}

impl CachedKey {
    /// Whether the list shows by itself that it is of the key's environment: the key opens its values, and its version did not
    /// go back. An empty list shows nothing, since the environment may have been made anew after the key was read.
    fn is_proven_by(&self, snapshot: &Snapshot) -> bool {
        !snapshot.values.is_empty()
            && snapshot.failed.is_empty()
            && snapshot.version >= self.version.load(Ordering::Relaxed)
    }

    fn fits(&self, environment: &Environment) -> bool {
        self.environment_id == environment.id
            && self.wrapped == environment.dek_wrapped
            && self.nonce == environment.dek_nonce
    }
}

/// Messages of later servers that are no known event are skipped.
fn event(answer: WatchSecretsResponse) -> Option<WatchEvent> {
    Some(match answer.response? {
        Response::Resync(resync) => WatchEvent::Resync { version: resync.current_version },
        Response::Event(event) => WatchEvent::Changed {
            deleted: event.event_type() == EventType::Deleted,
            key: event.key,
            version: event.version,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_tells_keys_and_nonces_apart_and_not_their_order() {
        let of = |secrets: &[(&str, &[u8])]| ContentFingerprint::of(secrets.iter().copied());
        let content = of(&[("A", &[1; 24]), ("B", &[2; 24])]);
        assert_eq!(of(&[("B", &[2; 24]), ("A", &[1; 24])]), content);
        for other in [
            of(&[("A", &[1; 24])]),
            of(&[("A", &[2; 24]), ("B", &[1; 24])]),
            of(&[("A", &[1; 24]), ("C", &[2; 24])]),
            of(&[]),
        ] {
            assert_ne!(other, content);
        }
    }
}

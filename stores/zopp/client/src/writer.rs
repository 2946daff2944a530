//! Changing one environment: several keys at once, with the manifest that shows the new state.
//!
//! A change takes effect as a whole or not at all, unless the server is a stock one, which changes one key after the other. In an
//! environment that is protected, the writer first checks that the state it builds on is the current one. It never makes a manifest of what a
//! manifest does not show: that is a person's decision ([`EnvironmentWriter::review`]).

use std::{collections::BTreeMap, time::Duration};

use konverge_core::SecretValue;
use konverge_zopp_crypto::{Dek, EnvironmentName, Manifest, OpenError, Protection, SealError};
use konverge_zopp_proto::{
    DeleteSecretRequest, Environment, UpsertSecretRequest,
    secrets::{
        ChangeSecretsRequest, EncryptedSecret, ReadEnvironmentRequest, ReadEnvironmentResponse, SealedManifest,
        WrappedDek,
    },
};
use tonic::Code;

use crate::{
    client::Client,
    error::CallError,
    keys::{KeyAccessError, refuse_ambiguous},
    manifest::{self, Difference, Extent, ManifestFault, Proof, pin_of},
    server_record::ManifestPin,
};

/// How often a change is tried while others change the environment at the same time.
const MOST_ATTEMPTS: u32 = 30;
/// How much longer than the one before each pause between them is.
const PAUSE: Duration = Duration::from_millis(5);

/// The changes of an environment, by key.
pub type Changes = BTreeMap<String, KeyChange>;

/// The change of one key.
pub enum KeyChange {
    /// It gets this value.
    Set(SecretValue),
    /// It is deleted.
    Delete,
}

/// Changes one environment.
#[derive(Clone)]
pub struct EnvironmentWriter {
    client: Client,
    name: EnvironmentName,
}

/// An environment could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A call failed, or a key could not be had.
    #[error(transparent)]
    Access(#[from] KeyAccessError),
    /// The state to build on is not the current one, or cannot be shown to be.
    #[error("nothing was changed: {0}")]
    NotCurrent(#[from] ManifestFault),
    /// A value or the manifest cannot be encrypted.
    #[error("it cannot be encrypted: {0}")]
    Seal(#[from] SealError),
    /// A value cannot be decrypted, so it cannot be encrypted anew.
    #[error("the value of '{key}' cannot be decrypted: {source}")]
    Undecryptable {
        /// Its key.
        key: String,
        /// Why.
        source: OpenError,
    },
    /// A key to set had a forbidden character. The message does not repeat the key, which may contain a value by mistake.
    #[error("the key of a secret must not contain \"=\" or control characters")]
    BadKey,
    /// A key to delete does not exist, or no version of it.
    #[error("secret {0:?} not found")]
    NoSuchKey(String),
    /// A version to go back to does not exist, or is not kept any more.
    #[error("secret {key:?} has no version {version}, or it is not kept any more")]
    NoSuchVersion {
        /// The key.
        key: String,
        /// The version.
        version: i64,
    },
    /// Others changed the environment at each attempt, or since it was reviewed.
    #[error("the environment was changed by others at the same time; nothing was changed here")]
    Contended,
    /// The server does not know our calls.
    #[error("the server has no such call: it is a stock one, or an older version")]
    NotSupported,
}

/// Returns `true` if a secret may have this key. Servers see keys in the clear, so a key `KEY=value` would show them the value.
pub fn may_be_set(key: &str) -> bool {
    !key.chars().any(|character| character == '=' || character.is_control())
}

/// The state of an environment, for a person who decides whether it is right.
pub struct Review {
    /// Why the state is refused, if it is.
    pub fault: Option<ManifestFault>,
    /// The manifest, if there is one that a holder of the environment's key made.
    pub manifest: Option<Manifest>,
    /// The keys in which the state differs from that manifest; without one, all keys are added.
    pub difference: Difference,
    /// The version that the server states.
    pub version: i64,
    /// How many keys there are.
    pub keys: usize,
    dek: Dek,
    answer: ReadEnvironmentResponse,
}

/// The state that a change builds on.
struct State {
    dek: Dek,
    answer: ReadEnvironmentResponse,
    proof: Proof,
}

impl From<CallError> for WriteError {
    fn from(error: CallError) -> Self {
        Self::Access(KeyAccessError::Call(error))
    }
}

impl EnvironmentWriter {
    /// Nothing is sent before the first change.
    pub fn new(client: Client, name: EnvironmentName) -> Self {
        Self { client, name }
    }

    /// Makes the changes, all or none. A stock server makes them one after the other; then an error may come after some of them.
    ///
    /// # Errors
    /// [`WriteError`]. [`WriteError::BadKey`] before anything is sent, [`WriteError::NotCurrent`] if the environment is protected and its
    /// manifest shows another state.
    pub async fn write(&self, changes: &Changes) -> Result<(), WriteError> {
        self.write_as(changes, None).await
    }

    /// The same, on record as a rollback to a version if one is given.
    pub(crate) async fn write_as(&self, changes: &Changes, rollback_to: Option<i64>) -> Result<(), WriteError> {
        if changes.iter().any(|(key, change)| matches!(change, KeyChange::Set(_)) && !may_be_set(key)) {
            return Err(WriteError::BadKey);
        }
        for attempt in 0..MOST_ATTEMPTS {
            let Some(state) = self.state().await? else { return self.write_by_contract(changes).await };
            match self.attempt(&state, changes, rollback_to).await {
                Err(WriteError::Access(KeyAccessError::Call(error))) if error.code() == Code::Aborted => {}
                outcome => return outcome,
            }
            tokio::time::sleep(PAUSE * attempt).await;
        }
        Err(WriteError::Contended)
    }

    /// Replaces the environment's key: makes a new one, encrypts all values with it, and makes a manifest of them if there was one. Returns
    /// how many values there are.
    ///
    /// # Errors
    /// [`WriteError`]. [`WriteError::NotSupported`] from a stock server, which cannot replace a key.
    pub async fn rotate_key(&self) -> Result<usize, WriteError> {
        let Some((dek, answer)) = self.read(false).await? else { return Err(WriteError::NotSupported) };
        let proof = manifest::check(self.seen().as_ref(), &dek, &self.name, &answer, Extent::Whole)?;
        let kek = self.client.workspace_key(&self.name.workspace).await?.kek;
        let new = Dek::generate().map_err(SealError::from)?;
        let wrapped = new.wrap(&kek, &self.name)?;
        let mut request = self.request();
        for EncryptedSecret { key, nonce, ciphertext } in &answer.secrets {
            let value = dek.decrypt(&self.name, key, nonce, ciphertext);
            let value = value.map_err(|source| WriteError::Undecryptable { key: key.clone(), source })?;
            let sealed = new.encrypt(&self.name, key, &value)?;
            let (nonce, ciphertext) = (sealed.nonce.to_vec(), sealed.ciphertext);
            request.set.push(EncryptedSecret { key: key.clone(), nonce, ciphertext });
        }
        request.expected_tag = Some(answer.tag.clone());
        request.new_dek = Some(WrappedDek { dek_wrapped: wrapped.ciphertext, dek_nonce: wrapped.nonce.to_vec() });
        // Also one that turns protection off: nobody could open it with the new key.
        let version = answer.version + i64::from(!request.set.is_empty());
        let next = proof.manifest().map(|before| Manifest { version, ..next_manifest(before, &request) });
        if let Some(next) = &next {
            let sealed = next.seal(&new, &self.name)?;
            request.manifest = Some(SealedManifest { nonce: sealed.nonce.to_vec(), ciphertext: sealed.ciphertext });
        }
        match self.client.change_secrets(request).await {
            Err(error) if error.code() == Code::Aborted => return Err(WriteError::Contended),
            changed => drop(changed?),
        }
        if let Some(next) = &next {
            self.client.connection().trust().saw_manifest(&self.name, pin_of(next));
        }
        Ok(answer.secrets.len())
    }

    /// Reads the state for a person to decide about.
    ///
    /// # Errors [`WriteError::NotSupported`] from a stock server, and everything by which a call can fail. A fault of the state itself is
    /// no error, but [`Review::fault`].
    pub async fn review(&self) -> Result<Review, WriteError> {
        let Some((dek, answer)) = self.read(true).await? else { return Err(WriteError::NotSupported) };
        let fault = manifest::check(self.seen().as_ref(), &dek, &self.name, &answer, Extent::Whole).err();
        let sealed = answer.manifest.as_ref();
        let manifest =
            sealed.and_then(|sealed| Manifest::open(&dek, &self.name, &sealed.nonce, &sealed.ciphertext).ok());
        let nonces = manifest::nonces(&answer.secrets);
        let shown = manifest.as_ref().map(|manifest| manifest.entries.clone()).unwrap_or_default();
        let difference = Difference::between(&shown, &nonces);
        let (version, keys) = (answer.version, nonces.len());
        Ok(Review { fault, manifest, difference, version, keys, dek, answer })
    }

    /// Makes a manifest of exactly the state that was reviewed, which a person accepts with it.
    ///
    /// # Errors
    /// [`WriteError::Contended`] if the environment was changed since, and everything by which a call can fail.
    pub async fn accept(&self, review: &Review, protection: Protection) -> Result<(), WriteError> {
        let Review { manifest, version, dek, answer, .. } = review;
        let of_this = |pin: &ManifestPin| pin.environment_id == answer.environment_id;
        // Above all that is known, so that no client takes it for an older one.
        let seen = self.seen().filter(of_this).map_or(0, |pin| pin.serial);
        let before = manifest.as_ref().filter(|manifest| manifest.environment_id == answer.environment_id);
        let serial = before.map_or(0, |manifest| manifest.serial).max(seen).saturating_add(1);
        let entries = answer
            .secrets
            .iter()
            .filter_map(|secret| Some((secret.key.clone(), secret.nonce.as_slice().try_into().ok()?)));
        let manifest = Manifest {
            environment_id: answer.environment_id.clone(),
            serial,
            version: *version,
            protection,
            entries: entries.collect(),
        };
        let sealed = manifest.seal(dek, &self.name)?;
        let request = ChangeSecretsRequest {
            expected_tag: Some(answer.tag.clone()),
            manifest: Some(SealedManifest { nonce: sealed.nonce.to_vec(), ciphertext: sealed.ciphertext }),
            ..self.request()
        };
        match self.client.change_secrets(request).await {
            Err(error) if error.code() == Code::Aborted => return Err(WriteError::Contended),
            answer => drop(answer?),
        }
        self.client.connection().trust().accept_manifest(&self.name, pin_of(&manifest));
        Ok(())
    }

    async fn attempt(&self, state: &State, changes: &Changes, rollback_to: Option<i64>) -> Result<(), WriteError> {
        let State { dek, answer, proof } = state;
        let there = manifest::nonces(&answer.secrets);
        let mut request = ChangeSecretsRequest { rollback_to, ..self.request() };
        for (key, change) in changes {
            match change {
                KeyChange::Set(value) => {
                    let sealed = dek.encrypt(&self.name, key, value)?;
                    let (nonce, ciphertext) = (sealed.nonce.to_vec(), sealed.ciphertext);
                    request.set.push(EncryptedSecret { key: key.clone(), nonce, ciphertext });
                }
                KeyChange::Delete if there.contains_key(key.as_str()) => request.delete.push(key.clone()),
                KeyChange::Delete => return Err(WriteError::NoSuchKey(key.clone())),
            }
        }
        // Without a manifest too: the key may be replaced meanwhile.
        request.expected_tag = Some(answer.tag.clone());
        let Proof::Proven(manifest) = proof else {
            self.client.change_secrets(request).await?;
            return Ok(());
        };
        let next = next_manifest(manifest, &request);
        let sealed = next.seal(dek, &self.name)?;
        request.manifest = Some(SealedManifest { nonce: sealed.nonce.to_vec(), ciphertext: sealed.ciphertext });
        self.client.change_secrets(request).await?;
        self.client.connection().trust().saw_manifest(&self.name, pin_of(&next));
        Ok(())
    }

    /// The state to build on; `None` from a server that does not know our calls.
    async fn state(&self) -> Result<Option<State>, WriteError> {
        let Some((dek, answer)) = self.read(true).await? else {
            return if self.seen().is_some() { Err(ManifestFault::Missing.into()) } else { Ok(None) };
        };
        let proof = manifest::check(self.seen().as_ref(), &dek, &self.name, &answer, Extent::Whole)?;
        if let Some(pin) = proof.pin() {
            self.client.connection().trust().saw_manifest(&self.name, pin);
        }
        Ok(Some(State { dek, answer, proof }))
    }

    async fn read(&self, without_ciphertexts: bool) -> Result<Option<(Dek, ReadEnvironmentResponse)>, WriteError> {
        refuse_ambiguous(&self.name)?;
        let EnvironmentName { workspace, project, environment } = self.name.clone();
        let request = ReadEnvironmentRequest {
            workspace_name: workspace,
            project_name: project,
            environment_name: environment,
            known_tag: None,
            without_ciphertexts,
        };
        let answer = match self.client.read_environment(request).await {
            Err(error) if error.is_unknown_call() => return Ok(None),
            answer => answer?,
        };
        let environment = Environment {
            id: answer.environment_id.clone(),
            dek_wrapped: answer.dek_wrapped.clone(),
            dek_nonce: answer.dek_nonce.clone(),
            ..Environment::default()
        };
        let dek = self.client.unwrap_environment_key(&self.name, &environment).await?;
        Ok(Some((dek, answer)))
    }

    async fn write_by_contract(&self, changes: &Changes) -> Result<(), WriteError> {
        let dek = self.client.environment_key(&self.name).await?;
        for (key, change) in changes {
            let EnvironmentName { workspace, project, environment } = self.name.clone();
            match change {
                KeyChange::Set(value) => {
                    let sealed = dek.encrypt(&self.name, key, value)?;
                    let request = UpsertSecretRequest {
                        workspace_name: workspace,
                        project_name: project,
                        environment_name: environment,
                        key: key.clone(),
                        nonce: sealed.nonce.to_vec(),
                        ciphertext: sealed.ciphertext,
                    };
                    self.client.upsert_secret(request).await?;
                }
                KeyChange::Delete => {
                    let request = DeleteSecretRequest {
                        workspace_name: workspace,
                        project_name: project,
                        environment_name: environment,
                        key: key.clone(),
                    };
                    self.client.delete_secret(request).await?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn name(&self) -> &EnvironmentName {
        &self.name
    }

    fn seen(&self) -> Option<ManifestPin> {
        self.client.connection().trust().manifest(&self.name)
    }

    fn request(&self) -> ChangeSecretsRequest {
        let EnvironmentName { workspace, project, environment } = self.name.clone();
        ChangeSecretsRequest {
            workspace_name: workspace,
            project_name: project,
            environment_name: environment,
            ..ChangeSecretsRequest::default()
        }
    }
}

/// The manifest of the state after a change.
fn next_manifest(before: &Manifest, change: &ChangeSecretsRequest) -> Manifest {
    let mut next = Manifest { serial: before.serial.saturating_add(1), version: before.version + 1, ..before.clone() };
    for key in &change.delete {
        next.entries.remove(key);
    }
    for secret in &change.set {
        if let Ok(nonce) = secret.nonce.as_slice().try_into() {
            next.entries.insert(secret.key.clone(), nonce);
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_manifest_shows_the_change_and_nothing_else() {
        let entries = ["A", "B", "C"].map(|key| (key.to_owned(), [1; 24])).into();
        let before =
            Manifest { environment_id: "e".into(), serial: 4, version: 7, protection: Protection::On, entries };
        let set = |key: &str| EncryptedSecret { key: key.into(), nonce: vec![2; 24], ciphertext: Vec::new() };
        let change =
            ChangeSecretsRequest { set: vec![set("B"), set("D")], delete: vec!["C".into()], ..Default::default() };
        let next = next_manifest(&before, &change);
        assert_eq!((next.serial, next.version, next.protection), (5, 8, Protection::On));
        let shown: Vec<_> = next.entries.iter().map(|(key, nonce)| (key.as_str(), nonce[0])).collect();
        assert_eq!(shown, [("A", 1), ("B", 2), ("D", 2)]);
    }
}

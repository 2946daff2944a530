//! Earlier values of a secret, and the way back to one of them.
//!
//! # What it does not prove
//! An earlier value opens under the environment's key and its own name only, so the server cannot make one up. Its version number, its time and
//! the principal that set it are the server's word: a lying server can give one earlier value of a key under the number of another. The value that
//! a rollback sets is a new one, in the manifest like any other.

use crate::{
    error::CallError,
    keys::refuse_ambiguous,
    writer::{EnvironmentWriter, KeyChange, WriteError},
};
use konverge_core::SecretValue;
use konverge_zopp_crypto::{EnvironmentName, OpenError};
use konverge_zopp_proto::{
    Environment,
    secrets::{
        Actor, ForgetSecretHistoryRequest, ReadSecretHistoryRequest, ReadSecretHistoryResponse, SecretVersion,
        VersionEnd,
    },
};

/// One version of a secret.
pub struct Version {
    /// The version of the environment at which it was set; 0 if the server did not record that yet.
    pub number: i64,
    /// When it was set (Unix seconds).
    pub set_at: i64,
    /// The principal that set it, if the server recorded it.
    pub set_by: Option<Actor>,
    /// How it ended; `None` if it is the current value.
    pub end: Option<VersionEnd>,
    /// The value, if it was requested.
    pub value: Option<Result<SecretValue, OpenError>>,
}

impl EnvironmentWriter {
    /// Reads the versions of a secret, the newest first, with their values or without.
    ///
    /// # Errors
    /// [`WriteError::NoSuchKey`] if there is no version, and [`WriteError::NotSupported`] from a server without this call.
    pub async fn history(&self, key: &str, with_values: bool) -> Result<Vec<Version>, WriteError> {
        let request = ReadSecretHistoryRequest { with_ciphertexts: with_values, ..self.history_request(key) };
        let versions = self.versions(request).await?;
        if versions.is_empty() { Err(WriteError::NoSuchKey(key.to_owned())) } else { Ok(versions) }
    }

    /// Sets a secret to the value that it had at a version, by a change like any other.
    ///
    /// # Errors
    /// [`WriteError::NoSuchVersion`], and everything by which reading the version or writing the value can fail.
    pub async fn roll_back(&self, key: &str, version: i64) -> Result<(), WriteError> {
        let request = ReadSecretHistoryRequest { version: Some(version), ..self.history_request(key) };
        let value = self.versions(request).await?.into_iter().find_map(|found| found.value);
        let value = value.ok_or_else(|| WriteError::NoSuchVersion { key: key.to_owned(), version })?;
        let value = value.map_err(|source| WriteError::Undecryptable { key: key.to_owned(), source })?;
        self.write_as(&[(key.to_owned(), KeyChange::Set(value))].into(), Some(version)).await
    }

    /// Has the server erase the earlier values of a secret. Returns how many there were.
    ///
    /// # Errors
    /// Everything by which a call can fail; [`WriteError::NotSupported`] from a server without this call.
    pub async fn forget_history(&self, key: &str) -> Result<u32, WriteError> {
        let EnvironmentName { workspace, project, environment } = self.name().clone();
        let request = ForgetSecretHistoryRequest {
            workspace_name: workspace,
            project_name: project,
            environment_name: environment,
            key: key.to_owned(),
        };
        Ok(self.client().forget_secret_history(request).await.map_err(unless_unknown)?.erased)
    }

    async fn versions(&self, request: ReadSecretHistoryRequest) -> Result<Vec<Version>, WriteError> {
        refuse_ambiguous(self.name())?;
        let key = request.key.clone();
        let with_values = request.with_ciphertexts || request.version.is_some();
        let answer = self.client().read_secret_history(request).await.map_err(unless_unknown)?;
        let ReadSecretHistoryResponse { environment_id, dek_wrapped, dek_nonce, versions } = answer;
        let dek = if with_values {
            let environment = Environment { id: environment_id, dek_wrapped, dek_nonce, ..Environment::default() };
            Some(self.client().unwrap_environment_key(self.name(), &environment).await?)
        } else {
            None
        };
        let read = |SecretVersion { version, nonce, ciphertext, set_at, set_by, end }| {
            let value = dek.as_ref().map(|dek| dek.decrypt(self.name(), &key, &nonce, &ciphertext));
            Version { number: version, set_at, set_by, end, value }
        };
        Ok(versions.into_iter().map(read).collect())
    }

    fn history_request(&self, key: &str) -> ReadSecretHistoryRequest {
        let EnvironmentName { workspace, project, environment } = self.name().clone();
        ReadSecretHistoryRequest {
            workspace_name: workspace,
            project_name: project,
            environment_name: environment,
            key: key.to_owned(),
            ..ReadSecretHistoryRequest::default()
        }
    }
}

fn unless_unknown(error: CallError) -> WriteError {
    if error.is_unknown_call() { WriteError::NotSupported } else { error.into() }
}

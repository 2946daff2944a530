//! From a principal's private key down to a value: wrap and unwrap a KEK, wrap and unwrap a DEK, encrypt and decrypt.

use konverge_core::SecretValue;
use zeroize::Zeroizing;

use crate::{
    envelope::{OpenError, SealError, Sealed, open, seal},
    keys::{Dek, KEY_LENGTH, Kek, X25519Private, X25519Public},
};

/// The three names that lead to an environment. Envelopes are bound to them, so none of them can ever be renamed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvironmentName {
    /// Workspace name, unique on a server.
    pub workspace: String,
    /// Project name, unique in its workspace.
    pub project: String,
    /// Environment name, unique in its project.
    pub environment: String,
}

impl EnvironmentName {
    /// Takes the names as they are; whether they exist is the server's to say.
    pub fn new(workspace: impl Into<String>, project: impl Into<String>, environment: impl Into<String>) -> Self {
        Self { workspace: workspace.into(), project: project.into(), environment: environment.into() }
    }

    fn bind_dek(&self) -> String {
        format!("environment:{}:{}:{}", self.workspace, self.project, self.environment)
    }

    fn bind_value(&self, key: &str) -> String {
        format!("secret:{}:{}:{}:{key}", self.workspace, self.project, self.environment)
    }
}

impl std::fmt::Display for EnvironmentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.workspace, self.project, self.environment)
    }
}

/// A KEK wrapped for one principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKek {
    /// Public half of a key pair made for this one wrap.
    pub ephemeral_public: X25519Public,
    /// The KEK's envelope.
    pub sealed: Sealed,
}

impl Kek {
    /// Wraps it for the principal that holds the private half of `recipient`. `workspace_id` is the lower-case UUID.
    pub fn wrap_for(&self, recipient: &X25519Public, workspace_id: &str) -> Result<WrappedKek, SealError> {
        let ephemeral = X25519Private::generate()?;
        let shared = shared_secret(&ephemeral, recipient).ok_or(SealError::WeakPublicKey)?;
        let sealed = seal(&shared, self.expose(), &bind_kek(workspace_id))?;
        Ok(WrappedKek { ephemeral_public: ephemeral.public(), sealed })
    }

    /// Opens what [`Kek::wrap_for`] made, from the fields of the server's answer.
    pub fn unwrap_with(
        private: &X25519Private,
        ephemeral_public: &[u8],
        nonce: &[u8],
        wrapped: &[u8],
        workspace_id: &str,
    ) -> Result<Self, OpenError> {
        let ephemeral = X25519Public::from_slice(ephemeral_public).map_err(OpenError::EphemeralKey)?;
        let shared = shared_secret(private, &ephemeral).ok_or(OpenError::WeakPublicKey)?;
        let opened = open(&shared, nonce, wrapped, &bind_kek(workspace_id))?;
        Self::from_slice(&opened).map_err(OpenError::WrappedKey)
    }
}

impl Dek {
    /// Wraps it under the workspace's key.
    pub fn wrap(&self, kek: &Kek, name: &EnvironmentName) -> Result<Sealed, SealError> {
        seal(kek.expose(), self.expose(), &name.bind_dek())
    }

    /// Opens what [`Dek::wrap`] made, from the fields of the server's answer.
    pub fn unwrap_with(kek: &Kek, nonce: &[u8], wrapped: &[u8], name: &EnvironmentName) -> Result<Self, OpenError> {
        let opened = open(kek.expose(), nonce, wrapped, &name.bind_dek())?;
        Self::from_slice(&opened).map_err(OpenError::WrappedKey)
    }

    /// Encrypts one value. Any bytes will do, though stock clients read UTF-8 only.
    pub fn encrypt(&self, name: &EnvironmentName, key: &str, value: &SecretValue) -> Result<Sealed, SealError> {
        seal(self.expose(), value.expose(), &name.bind_value(key))
    }

    /// Opens what [`Dek::encrypt`] made, from the fields of the server's answer.
    pub fn decrypt(
        &self,
        name: &EnvironmentName,
        key: &str,
        nonce: &[u8],
        ciphertext: &[u8],
    ) -> Result<SecretValue, OpenError> {
        let mut opened = open(self.expose(), nonce, ciphertext, &name.bind_value(key))?;
        Ok(SecretValue::new(std::mem::take(&mut *opened)))
    }
}

fn bind_kek(workspace_id: &str) -> String {
    format!("workspace:{workspace_id}")
}

/// The raw X25519 output, which is the wrapping key. `None` for the low-order public keys that give everybody the same.
fn shared_secret(private: &X25519Private, public: &X25519Public) -> Option<Zeroizing<[u8; KEY_LENGTH]>> {
    let private = x25519_dalek::StaticSecret::from(*private.expose());
    let shared = private.diffie_hellman(&x25519_dalek::PublicKey::from(public.to_bytes()));
    shared.was_contributory().then(|| Zeroizing::new(shared.to_bytes()))
}

#[cfg(test)]
mod tests;

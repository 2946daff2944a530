//! Replacing the key of a workspace, and then the keys of its environments.
//!
//! The workspace's key is replaced by one call: all of it happens, or nothing. Keys of environments follow one by one:
//! [`KeyRotation::environments`] names them. A program that ends in between loses nothing, and [`Client::environments_to_rekey`] returns the
//! environments that are left, as the server names them.
//!
//! # What it does not do
//! Those who knew the former keys still know the values that they read.

use std::collections::BTreeSet;

use konverge_zopp_crypto::{
    Dek, EnvironmentName, Fingerprint, Kek, KeyLink, OpenError, SealError, SigningPublic, WrapToSign, X25519Public,
};
use konverge_zopp_proto::identity as proto;
use tonic::Code;

use crate::{client::Client, error::CallError, key_chain::to_wire, keys::KeyAccessError, workspace_key::WorkspaceKey};

/// A workspace's key that is about to be replaced.
pub struct KeyRotation {
    client: Client,
    workspace: String,
    key: WorkspaceKey,
    state: proto::GetKeyStateResponse,
    recipients: Vec<Recipient>,
}

/// A principal that holds the key today.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// Its ID.
    pub principal_id: String,
    /// Its name.
    pub name: String,
    /// Of its user; `None` for a service.
    pub email: Option<String>,
    /// The e-mail address of the user, if this device remembers it.
    pub remembered_email: Option<String>,
    /// The fingerprint of the principal's public keys, as the server gives them.
    pub fingerprint: Fingerprint,
    /// The principal's Ed25519 public key, as the server gives it.
    pub signing_key: Vec<u8>,
    /// The principal's X25519 public key, as the server gives it.
    pub exchange_key: Vec<u8>,
    /// Whether its keys are known.
    pub status: RecipientStatus,
    /// Whether it may replace the key, as the server says.
    pub is_administrator: bool,
}

/// Whether the keys of a recipient are known. A lying server could name a key of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecipientStatus {
    /// It is this principal, its keys are pinned, or a known principal wrapped the former key for exactly this key.
    Known,
    /// Nothing but the server's word speaks for its keys.
    Unknown,
    /// Other keys are pinned.
    Changed,
    /// Whether the server names the principal as a holder, although this device disabled or removed it, or one with the same key.
    Revoked,
    /// It is disabled and gets no key.
    Disabled,
}

/// A replaced key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotated {
    /// How often the key was replaced, from 1.
    pub generation: u32,
    /// Of the new key.
    pub fingerprint: Fingerprint,
    /// Open invites that carried the former key.
    pub invites_revoked: u32,
}

/// The key of a workspace could not be replaced.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// A call failed, or a key could not be had.
    #[error(transparent)]
    Access(#[from] KeyAccessError),
    /// Others replaced the key, gave access or made environments at the same time.
    #[error("the workspace was changed by others at the same time; nothing was changed here")]
    Contended,
    /// A recipient has no usable key.
    #[error("the public key of principal {principal} cannot be used: {source}")]
    Recipient {
        /// Its ID.
        principal: String,
        /// Why.
        source: konverge_zopp_crypto::KeyError,
    },
    /// The key of an environment is not wrapped with the workspace's.
    #[error("the key of environment '{environment}' cannot be opened: {source}")]
    Environment {
        /// Which.
        environment: EnvironmentName,
        /// Why.
        source: OpenError,
    },
    /// A new key cannot be made or wrapped.
    #[error("the new key cannot be made: {0}")]
    Seal(#[from] SealError),
}

impl From<CallError> for RotationError {
    fn from(error: CallError) -> Self {
        Self::Access(KeyAccessError::Call(error))
    }
}

impl Client {
    /// Prepares to replace the key of a workspace: reads who holds it, and which of them are known. Changes nothing.
    ///
    /// # Errors
    /// [`RotationError::Access`]; its call is unknown to a stock server.
    pub async fn prepare_key_rotation(&self, workspace: &str) -> Result<KeyRotation, RotationError> {
        let request = proto::GetKeyStateRequest { workspace_name: workspace.to_owned() };
        let state = self.get_key_state(request).await?;
        let key = self.workspace_key(workspace).await?;
        if key.generation != Some(state.generation) || key.id != state.workspace_id {
            return Err(RotationError::Contended);
        }
        let recipients = recipients(self, workspace, &state, &BTreeSet::new());
        Ok(KeyRotation { client: self.clone(), workspace: workspace.to_owned(), key, state, recipients })
    }

    /// Returns the environments whose keys, as the server says, were made before the workspace's key was last replaced. Holders of the former key
    /// may know them. Only a program that was interrupted needs this call: a lying server can leave environments out.
    ///
    /// # Errors
    /// As any call. A stock server does not know it.
    pub async fn environments_to_rekey(&self, workspace: &str) -> Result<Vec<EnvironmentName>, CallError> {
        let request = proto::GetKeyStateRequest { workspace_name: workspace.to_owned() };
        let proto::GetKeyStateResponse { generation, environments, .. } = self.get_key_state(request).await?;
        let old = environments.into_iter().filter(|environment| environment.made_under < generation);
        Ok(old.map(|old| EnvironmentName::new(workspace, old.project_name, old.environment_name)).collect())
    }
}

impl KeyRotation {
    /// The principals that hold the key today, by ID.
    pub fn recipients(&self) -> &[Recipient] {
        &self.recipients
    }

    /// Returns the recipients after the principals in `leaving` have left. A leaving principal cannot vouch for others.
    pub fn recipients_without(&self, leaving: &BTreeSet<String>) -> Vec<Recipient> {
        let mut staying = recipients(&self.client, &self.workspace, &self.state, leaving);
        staying.retain(|recipient| !leaving.contains(&recipient.principal_id));
        staying
    }

    /// Returns the environments of the workspace. After [`KeyRotation::commit`], holders of the former key may know the key of each of them. A server
    /// that left one out cannot wrap its key with the new one, so holders of the new key cannot use that environment.
    pub fn environments(&self) -> Vec<EnvironmentName> {
        self.state.environments.iter().map(|environment| self.name_of(environment)).collect()
    }

    fn name_of(&self, environment: &proto::KeyedEnvironment) -> EnvironmentName {
        EnvironmentName::new(&*self.workspace, &*environment.project_name, &*environment.environment_name)
    }

    /// Returns `true` if the server tells which recipients are administrators. An earlier server does not, and refuses a request with such a list.
    pub fn has_administrators(&self) -> bool {
        self.recipients.iter().any(|recipient| recipient.is_administrator)
    }

    /// Returns the administrators of the new key: this principal, and the recipients of whom the server says so.
    fn administrators(&self, left_out: &BTreeSet<String>) -> BTreeSet<Fingerprint> {
        let is_named = |recipient: &&Recipient| {
            recipient.is_administrator
                && recipient.status != RecipientStatus::Disabled
                && !left_out.contains(&recipient.principal_id)
        };
        let named = self.recipients.iter().filter(is_named).map(|recipient| recipient.fingerprint);
        named.chain([self.client.identity().fingerprint()]).collect()
    }

    /// Replaces the key. All holders get the new one, except those in `left_out` and those that are disabled. The caller answers for the
    /// keys of all others.
    ///
    /// # Errors
    /// [`RotationError`]; nothing was changed then, unless the answer was lost on its way.
    pub async fn commit(&self, left_out: &BTreeSet<String>) -> Result<Rotated, RotationError> {
        let (id, seed) = (&self.key.id, self.client.identity().signing_seed());
        let new = Kek::generate().map_err(SealError::from)?;
        let generation = self.state.generation.saturating_add(1);
        let link = KeyLink::new(id, generation, &self.key.kek, &new)?;
        let fingerprint = link.new;
        let administrators = self.has_administrators().then(|| self.administrators(left_out));
        let mut request = proto::RotateWorkspaceKeyRequest {
            workspace_name: self.workspace.clone(),
            expected_generation: self.state.generation,
            link: Some(to_wire(link, administrators, id, seed)),
            ..Default::default()
        };
        for holder in &self.state.holders {
            if holder.disabled || left_out.contains(&holder.principal_id) {
                request.left_out.push(holder.principal_id.clone());
                continue;
            }
            let recipient = X25519Public::from_slice(&holder.x25519_public_key)
                // A second encoding of a removed key would count as another key.
                .and_then(|key| key.check_strength().map(|()| key))
                .map_err(|source| RotationError::Recipient { principal: holder.principal_id.clone(), source })?;
            let wrapped = new.wrap_for(&recipient, id)?;
            request.wraps.push(proto::WrappedKek {
                principal_id: holder.principal_id.clone(),
                signature: wrapped.sign(seed, &recipient, id).to_vec(),
                ephemeral_pub: wrapped.ephemeral_public.to_bytes().to_vec(),
                kek_wrapped: wrapped.sealed.ciphertext,
                kek_nonce: wrapped.sealed.nonce.to_vec(),
            });
        }
        for environment in &self.state.environments {
            let name = self.name_of(environment);
            let dek = Dek::unwrap_with(&self.key.kek, &environment.dek_nonce, &environment.dek_wrapped, &name)
                .map_err(|source| RotationError::Environment { environment: name.clone(), source })?;
            let sealed = dek.wrap(&new, &name)?;
            request.environments.push(proto::RewrappedDek {
                environment_id: environment.environment_id.clone(),
                dek_wrapped: sealed.ciphertext,
                dek_nonce: sealed.nonce.to_vec(),
            });
        }
        let answer = match self.client.rotate_workspace_key(request).await {
            Err(error) if error.code() == Code::Aborted => return Err(RotationError::Contended),
            answer => answer?,
        };
        self.client.connection().trust().pin_workspace(&self.workspace, fingerprint);
        Ok(Rotated { generation: answer.generation, fingerprint, invites_revoked: answer.invites_revoked })
    }
}

/// Returns the recipients. Principals in `leaving` cannot vouch for others.
fn recipients(
    client: &Client,
    workspace: &str,
    state: &proto::GetKeyStateResponse,
    leaving: &BTreeSet<String>,
) -> Vec<Recipient> {
    let trust = client.connection().trust();
    let is_revoked = |holder: &proto::KeyHolder| {
        trust.is_revoked(workspace, &holder.principal_id, &[&holder.public_key, &holder.x25519_public_key])
    };
    let vouches = |signer: &proto::KeyHolder| {
        let pinned = trust.principal(&signer.principal_id);
        pinned == Some(fingerprint(signer)) && !leaving.contains(&signer.principal_id) && !is_revoked(signer)
    };
    let status = |holder: &proto::KeyHolder| {
        let pinned = trust.principal(&holder.principal_id);
        if holder.disabled {
            RecipientStatus::Disabled
        } else if is_revoked(holder) {
            RecipientStatus::Revoked
        } else if pinned.is_some_and(|pinned| pinned != fingerprint(holder)) {
            RecipientStatus::Changed
        } else if pinned.is_some() || is_own(client, holder) || is_wrapped_by_known(client, state, holder, vouches) {
            RecipientStatus::Known
        } else {
            RecipientStatus::Unknown
        }
    };
    let recipient = |holder: &proto::KeyHolder| Recipient {
        principal_id: holder.principal_id.clone(),
        name: holder.principal_name.clone(),
        email: holder.user_email.clone(),
        remembered_email: trust.owner(&holder.principal_id),
        fingerprint: fingerprint(holder),
        signing_key: holder.public_key.clone(),
        exchange_key: holder.x25519_public_key.clone(),
        status: status(holder),
        is_administrator: holder.administrator,
    };
    state.holders.iter().map(recipient).collect()
}

fn fingerprint(holder: &proto::KeyHolder) -> Fingerprint {
    Fingerprint::of_principal(&holder.public_key, &holder.x25519_public_key)
}

fn is_own(client: &Client, holder: &proto::KeyHolder) -> bool {
    let own = client.identity().exchange_key().map(|private| private.public().to_bytes());
    own.is_some_and(|own| own == *holder.x25519_public_key)
}

/// Returns `true` if this principal, or one that may vouch, wrapped the former key for exactly this public key.
fn is_wrapped_by_known(
    client: &Client,
    state: &proto::GetKeyStateResponse,
    holder: &proto::KeyHolder,
    vouches: impl Fn(&proto::KeyHolder) -> bool,
) -> bool {
    let wrap = WrapToSign {
        workspace_id: &state.workspace_id,
        recipient: &holder.x25519_public_key,
        ephemeral_public: &holder.ephemeral_pub,
        nonce: &holder.kek_nonce,
        wrapped: &holder.kek_wrapped,
    };
    let is_by = |public: &SigningPublic| wrap.verify(public, &holder.signature).is_ok();
    if is_by(&client.identity().signing_seed().public()) {
        return true;
    }
    let signer = state.holders.iter().find(|signer| signer.principal_id == holder.signer_id && vouches(signer));
    signer.and_then(|signer| SigningPublic::from_slice(&signer.public_key).ok()).is_some_and(|public| is_by(&public))
}

//! From the client's private key to the keys of a workspace and of an environment.

use konverge_zopp_crypto::{
    Dek, EnvironmentName, Fingerprint, Kek, OpenError, SigningPublic, WrapToSign, X25519Private,
};
use konverge_zopp_proto::{
    Environment, GetEnvironmentRequest, GetWorkspaceKeysRequest, WorkspaceKeys,
    identity::{GetKeyChainRequest, GetKeySignatureRequest, KeyLink},
};
use tonic::Code;

use crate::{
    client::Client,
    error::CallError,
    key_chain::{self, ChainFault},
    trust::PinMismatch,
    workspace_key::WorkspaceKey,
};

/// A key could not be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyAccessError {
    /// The server did not hand out the wrapped key.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The principal has no X25519 key, so that nothing can have been wrapped for it.
    #[error("principal {principal:?} has no X25519 key, so no workspace key can be opened")]
    NoExchangeKey {
        /// The principal's name.
        principal: String,
    },
    /// The server gives another key than the pinned one: of the workspace, or of the principal that wrapped the workspace's.
    #[error(transparent)]
    OtherKey(#[from] PinMismatch),
    /// The signature over the wrapped key is not by the principal that the server names.
    #[error(
        "the key of workspace '{workspace}' bears a signature that is not by principal {principal}, whom the server names. The server, or \
         somebody who can write its database, may have replaced it"
    )]
    BadSignature {
        /// The workspace.
        workspace: String,
        /// The ID of the principal that the server names.
        principal: String,
    },
    /// Nobody whom this device knows vouches for the key, and that is required.
    #[error(
        "the key of workspace '{workspace}' is not pinned, and no principal that this device knows signed it, which --require-signed-keys \
         demands"
    )]
    Unvouched {
        /// The workspace.
        workspace: String,
    },
    /// Nothing pinned the key, and first keys are not trusted.
    #[error("nothing pins the key of workspace '{workspace}', and the server gives the key {offered}")]
    Unpinned {
        /// The workspace.
        workspace: String,
        /// The fingerprint of the key that the server gives.
        offered: Fingerprint,
    },
    /// The server says that the pinned key was replaced, and cannot show it.
    #[error("the server says that the key of workspace '{workspace}' was replaced, and {source}. The server may lie")]
    Chain {
        /// The workspace.
        workspace: String,
        /// The fault of the chain.
        source: ChainFault,
    },
    /// Two environments could have this context of encryption, and a server could give one's key and values for the other's.
    #[error(
        "workspace or project name in '{name}' contains \":\", which makes it look like another environment's to the encryption; make a \
         project without it and move the secrets there"
    )]
    AmbiguousName {
        /// The environment.
        name: EnvironmentName,
    },
    /// The wrapped key is not for this principal, or damaged.
    #[error("the {what} cannot be opened by this principal's key: {source}")]
    Open {
        /// Which key.
        what: &'static str,
        /// Why.
        source: OpenError,
    },
}

impl Client {
    /// Returns the workspace's key, unwrapped with the client's own private key. It is the pinned one; if none is pinned, it is now.
    ///
    /// The wrap itself proves nothing: everybody who knows the principal's public key, above all the server, can make one. If no key is
    /// pinned, the signature over the wrap is looked at, where there is one.
    pub async fn workspace_key(&self, workspace: &str) -> Result<WorkspaceKey, KeyAccessError> {
        let no_key = || KeyAccessError::NoExchangeKey { principal: self.identity().name().to_owned() };
        let private = self.identity().exchange_key().ok_or_else(no_key)?;
        let request = GetWorkspaceKeysRequest { workspace_name: workspace.to_owned() };
        let keys = self.get_workspace_keys(request).await?;
        let kek =
            Kek::unwrap_with(private, &keys.ephemeral_pub, &keys.kek_nonce, &keys.kek_wrapped, &keys.workspace_id)
                .map_err(|source| KeyAccessError::Open { what: "workspace key", source })?;
        let generation = Some(keys.generation).filter(|generation| *generation > 0);
        let key = WorkspaceKey { id: keys.workspace_id.clone(), kek, generation };
        let trust = self.connection().trust();
        match trust.workspace(workspace) {
            None if self.is_vouched_for(workspace, private, &keys).await? => {
                trust.pin_workspace(workspace, key.fingerprint());
            }
            None if self.connection().requires_signed_keys(workspace) => return Err(unvouched(workspace)),
            None if !self.connection().trusts_first_key() => {
                return Err(KeyAccessError::Unpinned { workspace: workspace.to_owned(), offered: key.fingerprint() });
            }
            Some(pinned) if pinned != key.fingerprint() => self.follow(workspace, pinned, &key).await?,
            _ => {}
        }
        trust.check_workspace(workspace, key.fingerprint())?;
        trust.saw_generation(workspace, key.generation.unwrap_or_default());
        Ok(key)
    }

    /// Pins the key if the chain of its generations leads to it from the pinned one. A chain that does not reach the pinned key is no error here:
    /// the key differs from the pinned one, as before.
    ///
    /// The administrators are known of the key that was pinned first. Where they count, the chain begins there and leads through the pinned key.
    async fn follow(&self, workspace: &str, pinned: Fingerprint, key: &WorkspaceKey) -> Result<(), KeyAccessError> {
        let request = GetKeyChainRequest { workspace_name: workspace.to_owned() };
        let chain = match self.get_key_chain(request).await {
            Err(error) if error.is_unknown_call() => return Ok(()),
            chain => chain?,
        };
        let fault = |source| KeyAccessError::Chain { workspace: workspace.to_owned(), source };
        let trust = self.connection().trust();
        let is_required = self.connection().requires_signed_keys(workspace);
        let first = trust.first_administrators(workspace).filter(|_| is_required);
        let start = first.as_ref().map_or(pinned, |(root, _)| *root);
        let Some(links) = key_chain::follow(key, &chain.links, start).map_err(fault)? else { return Ok(()) };
        if !links.iter().any(|link| link.former_fingerprint == pinned.to_bytes()) {
            return Ok(());
        }
        let administrators = if let Some((_, administrators)) = first {
            Some(key_chain::check_makers(&links, administrators).map_err(fault)?)
        } else {
            self.check_known_makers(workspace, &links, is_required)?;
            None
        };
        trust.follow_workspace(workspace, pinned, key.fingerprint(), administrators);
        Ok(())
    }

    /// Compares the makers of the links with the principals that are pinned, and pins those that are not, unless that is refused. A maker that this
    /// device removed counts as unknown: it may have made the link before the removal.
    fn check_known_makers(&self, workspace: &str, links: &[&KeyLink], is_required: bool) -> Result<(), KeyAccessError> {
        let trust = self.connection().trust();
        for link in links {
            let offered = Fingerprint::of_principal(&link.signer_public_key, &link.signer_x25519_public_key);
            if link.signer_public_key != self.identity().signing_seed().public().to_bytes() {
                let keys = [&*link.signer_public_key, &link.signer_x25519_public_key];
                let is_removed = trust.is_revoked(workspace, &link.signer_id, &keys);
                if is_required && (is_removed || trust.principal(&link.signer_id).is_none()) {
                    return Err(unvouched(workspace));
                }
                if !is_removed {
                    trust.check_principal(&link.signer_id, offered)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a principal that this device trusts wrapped the key: this one, or one whose public keys are pinned. Keys that are not signed, or
    /// are by an unknown or removed principal, are nobody's word. A false signature is an error.
    async fn is_vouched_for(
        &self,
        workspace: &str,
        private: &X25519Private,
        keys: &WorkspaceKeys,
    ) -> Result<bool, KeyAccessError> {
        let request = GetKeySignatureRequest { workspace_name: workspace.to_owned() };
        let signer = match self.get_key_signature(request).await {
            Err(error) if error.is_unknown_call() || error.code() == Code::NotFound => return Ok(false),
            answer => answer?,
        };
        let wrap = WrapToSign {
            workspace_id: &keys.workspace_id,
            recipient: &private.public().to_bytes(),
            ephemeral_public: &keys.ephemeral_pub,
            nonce: &keys.kek_nonce,
            wrapped: &keys.kek_wrapped,
        };
        let is_authentic = SigningPublic::from_slice(&signer.public_key)
            .is_ok_and(|public| wrap.verify(&public, &signer.signature).is_ok());
        if !is_authentic {
            return Err(KeyAccessError::BadSignature {
                workspace: workspace.to_owned(),
                principal: signer.principal_id,
            });
        }
        if signer.public_key == self.identity().signing_seed().public().to_bytes() {
            return Ok(true);
        }
        let trust = self.connection().trust();
        let is_removed =
            trust.is_revoked(workspace, &signer.principal_id, &[&signer.public_key, &signer.x25519_public_key]);
        if is_removed || trust.principal(&signer.principal_id).is_none() {
            return Ok(false);
        }
        let offered = Fingerprint::of_principal(&signer.public_key, &signer.x25519_public_key);
        trust.check_principal(&signer.principal_id, offered)?;
        Ok(true)
    }

    /// The environment's key, unwrapped with the workspace's. An ambiguous name is refused before anything is sent.
    pub async fn environment_key(&self, name: &EnvironmentName) -> Result<Dek, KeyAccessError> {
        refuse_ambiguous(name)?;
        let request = GetEnvironmentRequest {
            workspace_name: name.workspace.clone(),
            project_name: name.project.clone(),
            environment_name: name.environment.clone(),
        };
        let environment = self.get_environment(request).await?;
        self.unwrap_environment_key(name, &environment).await
    }

    pub(crate) async fn unwrap_environment_key(
        &self,
        name: &EnvironmentName,
        environment: &Environment,
    ) -> Result<Dek, KeyAccessError> {
        refuse_ambiguous(name)?;
        let workspace = self.workspace_key(&name.workspace).await?;
        Dek::unwrap_with(&workspace.kek, &environment.dek_nonce, &environment.dek_wrapped, name)
            .map_err(|source| KeyAccessError::Open { what: "environment key", source })
    }
}

fn unvouched(workspace: &str) -> KeyAccessError {
    KeyAccessError::Unvouched { workspace: workspace.to_owned() }
}

/// The context of encryption joins the names with `:`. A workspace or project with a `:` in its name shares the context of an environment
/// elsewhere: `a:b`, `c` and `a`, `b:c` are both `a:b:c`. In the last name, and in keys, a `:` is harmless as long as these two have none:
/// the first two separators are the first two `:`.
pub fn refuse_ambiguous(name: &EnvironmentName) -> Result<(), KeyAccessError> {
    if name.workspace.contains(':') || name.project.contains(':') {
        return Err(KeyAccessError::AmbiguousName { name: name.clone() });
    }
    Ok(())
}

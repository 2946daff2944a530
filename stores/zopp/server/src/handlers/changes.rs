//! Environments as a whole: the calls of Konverge's own. The server sees keys and ciphertexts, never a value, and no manifest.

use std::collections::BTreeSet;

use konverge_zopp_proto::secrets as proto;
use tonic::Status;

use super::secrets::{ciphertext, publishing, resolve};
use crate::{
    call::Call,
    limits::Reached,
    rbac::Role,
    status::{exhausted, from_store, or_missing},
    store::{
        Attempt, EnvironmentContent, EnvironmentRow, EnvironmentState, SealedManifest, SecretRow, SecretsChange, Wanted,
    },
    validate,
};

/// Reads an environment, or tells that the known tag still holds.
pub(crate) async fn read_environment(
    call: &mut Call,
    message: proto::ReadEnvironmentRequest,
) -> Result<proto::ReadEnvironmentResponse, Status> {
    let names = [&message.workspace_name, &message.project_name, &message.environment_name];
    let (_, environment) = resolve(call, names, Role::Read).await?;
    let wanted = if message.without_ciphertexts { Wanted::WithoutCiphertexts } else { Wanted::All };
    let known_tag = message.known_tag.as_deref();
    let state = if let Some(tag) = known_tag.filter(|tag| call.has_tag(tag)) {
        EnvironmentState { version: environment.version, tag: tag.to_owned(), content: None }
    } else {
        call.reserve_list(&environment.id).await?;
        state(call, &environment, wanted, known_tag).await?
    };
    let details = state.content.as_ref().map(|content| format!("{{\"count\":{}}}", content.secrets.len()));
    call.about(&environment.id, details);
    Ok(answer(environment.id, state))
}

/// Reads one secret, with the manifest that says whether it is the current one.
pub(crate) async fn read_secret(
    call: &mut Call,
    message: proto::ReadSecretRequest,
) -> Result<proto::ReadEnvironmentResponse, Status> {
    validate::lookup("secret key", &message.key)?;
    call.about(&message.key, None);
    let names = [&message.workspace_name, &message.project_name, &message.environment_name];
    let (_, environment) = resolve(call, names, Role::Read).await?;
    call.reserve_value().await?;
    let state = state(call, &environment, Wanted::Key(&message.key), None).await?;
    Ok(answer(environment.id, state))
}

/// Sets and deletes keys in one transaction.
pub(crate) async fn change(
    call: &mut Call,
    message: proto::ChangeSecretsRequest,
) -> Result<proto::ChangeSecretsResponse, Status> {
    let names = [&message.workspace_name, &message.project_name, &message.environment_name];
    let (place, environment) = resolve(call, names, Role::Write).await?;
    if message.new_dek.is_some() {
        call.require(&place, Role::Admin).await?;
    }
    let change = validated(call, message)?;
    let audit = call.audit(&environment.id);
    let (workspace_id, environment_id) = (place.workspace.id, environment.id.clone());
    let attempt = publishing(&call.state, environment.id, move |state| async move {
        let attempt = state.store.change_secrets(&workspace_id, &environment_id, &change, &audit).await?;
        let event = match &attempt {
            Attempt::Done { version, .. } => change.event(*version),
            Attempt::Outdated { .. } | Attempt::NotAll => None,
        };
        Ok((attempt, event))
    });
    match attempt.await.map_err(or_missing("environment, or a key to delete in it,", &environment.name))? {
        Attempt::Done { version, tag } => Ok(proto::ChangeSecretsResponse { version, tag }),
        Attempt::NotAll => Err(Status::invalid_argument("with a new key, exactly the keys that exist must be set")),
        Attempt::Outdated { version } => Err(Status::aborted(format!(
            "environment {:?} was changed meanwhile and is at version {version}; read it again",
            environment.name
        ))),
    }
}

async fn state(
    call: &Call,
    environment: &EnvironmentRow,
    wanted: Wanted<'_>,
    known_tag: Option<&str>,
) -> Result<EnvironmentState, Status> {
    let state = call.state.store.environment_state(&environment.id, wanted, known_tag).await.map_err(from_store)?;
    state.ok_or_else(|| Status::not_found(format!("environment {:?} not found", environment.name)))
}

fn answer(environment_id: String, state: EnvironmentState) -> proto::ReadEnvironmentResponse {
    let EnvironmentState { version, tag, content } = state;
    let head = proto::ReadEnvironmentResponse { environment_id, version, tag, ..Default::default() };
    let Some(EnvironmentContent { dek_wrapped, dek_nonce, manifest, secrets }) = content else {
        return proto::ReadEnvironmentResponse { unchanged: true, ..head };
    };
    let secret = |SecretRow { key, nonce, ciphertext }| proto::EncryptedSecret { key, nonce, ciphertext };
    let manifest = manifest.map(|SealedManifest { nonce, ciphertext }| proto::SealedManifest { nonce, ciphertext });
    let secrets = secrets.into_iter().map(secret).collect();
    proto::ReadEnvironmentResponse { dek_wrapped, dek_nonce, secrets, manifest, ..head }
}

fn validated(call: &Call, message: proto::ChangeSecretsRequest) -> Result<SecretsChange, Status> {
    let mut keys = BTreeSet::new();
    let changed = message.set.iter().map(|secret| &secret.key).chain(&message.delete);
    if let Some(twice) = changed.into_iter().find(|key| !keys.insert(*key)) {
        return Err(Status::invalid_argument(format!("key {twice:?} must not be in one change twice")));
    }
    let changes_no_key = keys.is_empty();
    let changes_one_key = (message.set.len(), message.delete.len()) == (1, 0);
    // A new key of the environment encrypts all existing secrets again.
    let is_key = if message.new_dek.is_some() { validate::stored_key } else { validate::secret_key };
    let mut set = Vec::with_capacity(message.set.len());
    // Moved, not copied: they may have megabytes.
    for secret in message.set {
        set.push(SecretRow {
            key: is_key(&secret.key)?.to_owned(),
            nonce: validate::nonce("nonce", &secret.nonce)?,
            ciphertext: ciphertext(call, secret.ciphertext)?,
        });
    }
    for key in &message.delete {
        validate::lookup("secret key", key)?;
    }
    let manifest = match message.manifest {
        None if changes_no_key && message.new_dek.is_none() => {
            return Err(Status::invalid_argument("the change must set or delete a key, or bring a manifest"));
        }
        None => None,
        Some(_) if message.expected_tag.is_none() => {
            return Err(Status::invalid_argument("expected_tag must be given with a manifest, which is of one state"));
        }
        Some(manifest) => Some(SealedManifest {
            nonce: validate::nonce("nonce of the manifest", &manifest.nonce)?,
            ciphertext: manifest_ciphertext(manifest.ciphertext)?,
        }),
    };
    let new_dek = match &message.new_dek {
        None => None,
        Some(_) if message.expected_tag.is_none() => {
            return Err(Status::invalid_argument("expected_tag must be given with a new key, which is of one state"));
        }
        Some(proto::WrappedDek { dek_wrapped, dek_nonce }) => {
            Some((validate::wrapped_key("dek_wrapped", dek_wrapped)?, validate::nonce("dek_nonce", dek_nonce)?))
        }
    };
    if message.rollback_to.is_some() && !changes_one_key {
        return Err(Status::invalid_argument("rollback_to is for a change that sets one key"));
    }
    Ok(SecretsChange {
        expected_tag: message.expected_tag,
        expected_version: message.expected_version,
        set,
        delete: message.delete,
        manifest,
        new_dek,
        rollback_to: message.rollback_to,
    })
}

/// The most that is kept of a manifest: enough for the default limit of keys, with names of 60 bytes.
const MAXIMUM_MANIFEST: u32 = 2 * 1024 * 1024;

fn manifest_ciphertext(bytes: Vec<u8>) -> Result<Vec<u8>, Status> {
    let ciphertext = validate::ciphertext(bytes)?;
    if ciphertext.len() > MAXIMUM_MANIFEST as usize {
        let reached =
            Reached { what: "bytes of a manifest", limit: MAXIMUM_MANIFEST, flag: "fixed; use fewer or shorter keys" };
        return Err(exhausted(&reached, None));
    }
    Ok(ciphertext)
}

//! Secrets. The server sees keys and ciphertexts, never a value.

use std::sync::Arc;

use konverge_zopp_crypto::envelope::TAG_LENGTH;
use konverge_zopp_proto as proto;
use tonic::Status;

use crate::{
    call::Call,
    clock,
    events::Event,
    limits::Reached,
    place::{Place, no_environment},
    rbac::Role,
    state::State,
    status::{exhausted, from_store, or_missing},
    store::{EnvironmentRow, SecretRow, StoreError},
    validate,
};

/// Sets one key.
pub(crate) async fn upsert(call: &mut Call, message: proto::UpsertSecretRequest) -> Result<proto::Empty, Status> {
    let names = [&message.workspace_name, &message.project_name, &message.environment_name];
    let (mut place, mut environment) = resolve(call, names, Role::Write).await?;
    let secret = Arc::new(SecretRow {
        key: validate::secret_key(&message.key)?.to_owned(),
        nonce: validate::nonce("nonce", &message.nonce)?,
        // Moved, not copied: it may have megabytes.
        ciphertext: ciphertext(call, message.ciphertext)?,
    });
    loop {
        let (audit, secret) = (call.audit(&secret.key), Arc::clone(&secret));
        let (workspace_id, environment_id) = (place.workspace.id, environment.id.clone());
        let changed = publishing(&call.state, environment.id, move |state| async move {
            let change = state.store.upsert_secret(&workspace_id, &environment_id, &secret, &audit).await?;
            Ok(((), Some(changed(secret.key.clone(), change.version, false))))
        });
        let Err(error) = changed.await else { return Ok(proto::Empty {}) };
        if !call.look_again(&error).await? {
            return Err(match error {
                StoreError::EnvironmentGone | StoreError::Missing => no_environment(&environment.name),
                error => from_store(error),
            });
        }
        (place, environment) = resolve(call, names, Role::Write).await?;
    }
}

/// Deletes one key.
pub(crate) async fn delete(call: &mut Call, message: proto::DeleteSecretRequest) -> Result<proto::Empty, Status> {
    let names = [&message.workspace_name, &message.project_name, &message.environment_name];
    let (_, mut environment) = resolve(call, names, Role::Write).await?;
    validate::lookup("secret key", &message.key)?;
    loop {
        let audit = call.audit(&message.key);
        let (key, environment_id) = (message.key.clone(), environment.id.clone());
        let changed = publishing(&call.state, environment.id, move |state| async move {
            let version = state.store.delete_secret(&environment_id, &key, &audit).await?;
            Ok(((), Some(changed(key, version, true))))
        });
        let Err(error) = changed.await else { return Ok(proto::Empty {}) };
        if !call.look_again(&error).await? {
            return Err(match error {
                StoreError::EnvironmentGone => no_environment(&environment.name),
                error => or_missing("secret", &message.key)(error),
            });
        }
        (_, environment) = resolve(call, names, Role::Write).await?;
    }
}

/// One secret.
pub(crate) async fn get(call: &mut Call, message: proto::GetSecretRequest) -> Result<proto::Secret, Status> {
    validate::lookup("secret key", &message.key)?;
    call.about(&message.key, None);
    let names = [&message.workspace_name, &message.project_name, &message.environment_name];
    loop {
        let (_, environment) = resolve(call, names, Role::Read).await?;
        call.reserve_value().await?;
        match call.secret(&environment.id, &message.key).await {
            Ok(secret) => {
                let missing = || Status::not_found(format!("secret {:?} not found", message.key));
                return secret.map(answer).ok_or_else(missing);
            }
            Err(error) if call.look_again(&error).await? => {}
            Err(error) => return Err(from_store(error)),
        }
    }
}

/// All secrets, and the version they make up.
pub(crate) async fn list(call: &mut Call, message: proto::ListSecretsRequest) -> Result<proto::SecretList, Status> {
    let names = [&message.workspace_name, &message.project_name, &message.environment_name];
    let (_, environment) = resolve(call, names, Role::Read).await?;
    call.reserve_list(&environment.id).await?;
    let snapshot = call
        .state
        .store
        .snapshot(&environment.id)
        .await
        .map_err(from_store)?
        .ok_or_else(|| Status::not_found(format!("environment {:?} not found", environment.name)))?;
    call.about(&environment.id, Some(format!("{{\"count\":{}}}", snapshot.secrets.len())));
    Ok(proto::SecretList { secrets: snapshot.secrets.into_iter().map(answer).collect(), version: snapshot.version })
}

/// The environment of three names, if the caller has the role there.
pub(crate) async fn resolve(
    call: &mut Call,
    [workspace, project, environment]: [&String; 3],
    role: Role,
) -> Result<(Place, EnvironmentRow), Status> {
    call.environment_with_role([workspace, project, environment], role).await
}

/// An encrypted value within the limit.
pub(crate) fn ciphertext(call: &Call, bytes: Vec<u8>) -> Result<Vec<u8>, Status> {
    let ciphertext = validate::ciphertext(bytes)?;
    let limit = call.state.store.limits().value_bytes;
    if ciphertext.len() > TAG_LENGTH.saturating_add(limit.try_into().unwrap_or(usize::MAX)) {
        return Err(exhausted(&Reached { what: "bytes of a value", limit, flag: "--max-value-bytes" }, None));
    }
    Ok(ciphertext)
}

fn changed(key: String, version: i64, deleted: bool) -> Event {
    Event::Changed { key, version, deleted, timestamp: clock::now() }
}

/// Makes a change and tells of its event, as one: in the order of the versions, and to the end even if the caller hangs up in between.
pub(crate) async fn publishing<T, F, C>(state: &Arc<State>, environment_id: String, change: C) -> Result<T, StoreError>
where
    T: Send + 'static,
    C: FnOnce(Arc<State>) -> F + Send + 'static,
    F: Future<Output = Result<(T, Option<Event>), StoreError>> + Send,
{
    let state = Arc::clone(state);
    let task = tokio::spawn(async move {
        let _in_order = state.events.in_order().await;
        let (outcome, event) = change(Arc::clone(&state)).await?;
        if let Some(event) = event {
            state.events.publish(&environment_id, event);
        }
        Ok(outcome)
    });
    // The task is never aborted; it can only panic, and then so do we.
    match task.await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn answer(row: SecretRow) -> proto::Secret {
    proto::Secret { key: row.key, nonce: row.nonce, ciphertext: row.ciphertext }
}

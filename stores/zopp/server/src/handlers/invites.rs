//! Invites to workspaces.

use konverge_zopp_proto as proto;
use tonic::Status;

use crate::{
    call::{Call, Place},
    clock,
    rbac::Role,
    state::State,
    status::{from_store, or_exists, or_missing},
    store::{InviteRow, NewInvite, Scope, WorkspaceRow},
    validate,
};

/// Makes an invite to workspaces the caller is admin of. Invites to the server itself are its operator's to make.
pub(crate) async fn create(call: &mut Call, message: proto::CreateInviteRequest) -> Result<proto::InviteToken, Status> {
    let user_id = call.caller.user_id()?.to_owned();
    if message.workspace_ids.is_empty() {
        return Err(Status::permission_denied(
            "an invite without a workspace is made on the server: zopp-server invite create",
        ));
    }
    let mut workspace_ids = Vec::with_capacity(message.workspace_ids.len());
    for id in &message.workspace_ids {
        let id = validate::id("workspace_ids", id)?;
        if !call.state.store.is_workspace_of_user(&id, &user_id).await.map_err(from_store)? {
            return Err(Status::not_found(format!("workspace {id:?} not found or access denied")));
        }
        call.require(&place(&id), Role::Admin).await?;
        if !workspace_ids.contains(&id) {
            workspace_ids.push(id);
        }
    }
    let token = validate::token(&message.token)?;
    if message.expires_at <= clock::now() {
        return Err(Status::invalid_argument("expires_at must be in the future (Unix seconds)"));
    }
    let has_key = !message.kek_encrypted.is_empty();
    if has_key {
        validate::wrapped_key("kek_encrypted", &message.kek_encrypted)?;
        validate::nonce("kek_nonce", &message.kek_nonce)?;
    }
    let invite = NewInvite {
        token,
        workspace_ids: &workspace_ids,
        expires_at: message.expires_at,
        kek_encrypted: has_key.then_some(&message.kek_encrypted),
        kek_nonce: has_key.then_some(&message.kek_nonce),
    };
    let mut audit = call.audit("");
    audit.workspace_id = workspace_ids.first().cloned();
    let made = call
        .state
        .store
        .create_invite(&invite, Some((&user_id, &audit)))
        .await
        .map_err(or_exists("an invite with this token, made by", "somebody"))?;
    Ok(answer(made, message.token))
}

/// The invite of a token, unless its time is over.
pub(crate) async fn get(state: &State, message: proto::GetInviteRequest) -> Result<proto::InviteToken, Status> {
    let not_found = || Status::not_found("invite not found or expired; ask for a new one");
    let invite = state.store.invite(&message.token).await.map_err(from_store)?.ok_or_else(not_found)?;
    if invite.expires_at <= clock::now() {
        return Err(not_found());
    }
    Ok(answer(invite, message.token))
}

/// The invites the caller's user made. Their tokens are not kept, so the hash they are kept under stands in for them; it names
/// an invite for revoking it.
pub(crate) async fn list(call: &mut Call, _: proto::Empty) -> Result<proto::InviteList, Status> {
    let rows = call.state.store.invites(Some(call.caller.user_id()?)).await.map_err(from_store)?;
    let invites = rows
        .into_iter()
        .map(|row| {
            let name = hex::encode(&row.token_hash);
            answer(row, name)
        })
        .collect();
    Ok(proto::InviteList { invites })
}

/// Revokes an invite to a workspace the caller is admin of, named by its token or as listed.
pub(crate) async fn revoke(call: &mut Call, message: proto::RevokeInviteRequest) -> Result<proto::Empty, Status> {
    let user_id = call.caller.user_id()?.to_owned();
    let not_found = || Status::not_found("invite not found");
    let store = &call.state.store;
    let invite = match store.invite(&message.token).await.map_err(from_store)? {
        Some(invite) => Some(invite),
        None => store
            .invites(Some(&user_id))
            .await
            .map_err(from_store)?
            .into_iter()
            .find(|invite| hex::encode(&invite.token_hash) == message.token),
    }
    .ok_or_else(not_found)?;
    let mut allowed = Err(Status::permission_denied("an invite to the server is revoked on the server"));
    for workspace in &invite.workspaces {
        allowed = call.require(&place(&workspace.id), Role::Admin).await;
        if allowed.is_ok() {
            break;
        }
    }
    allowed?;
    let mut audit = call.audit(&invite.id);
    audit.workspace_id = invite.workspaces.first().map(|workspace| workspace.id.clone());
    call.state.store.revoke_invite(&invite.id, Some(&audit)).await.map_err(or_missing("invite", &invite.id))?;
    Ok(proto::Empty {})
}

fn place(workspace_id: &str) -> Place {
    Place {
        workspace: WorkspaceRow { id: workspace_id.to_owned(), name: String::new() },
        scope: Scope { workspace_id: workspace_id.to_owned(), project_id: None, environment_id: None },
    }
}

fn answer(row: InviteRow, token: String) -> proto::InviteToken {
    proto::InviteToken {
        id: row.id,
        token,
        workspace_ids: row.workspaces.into_iter().map(|workspace| workspace.id).collect(),
        created_at: row.created_at,
        expires_at: row.expires_at,
        kek_encrypted: row.kek_encrypted.unwrap_or_default(),
        kek_nonce: row.kek_nonce.unwrap_or_default(),
        invite_secret: String::new(),
        user_id: None,
    }
}

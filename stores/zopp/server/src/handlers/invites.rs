//! Invites to workspaces.

use konverge_zopp_proto::{self as proto, identity};
use tonic::{Request, Status};

use crate::{
    audit::row::{NOBODY, blank_row, client_ip},
    call::{Call, admit_open},
    clock,
    place::Place,
    rbac::Role,
    state::State,
    status::{from_store, or_exists, or_missing},
    store::{Action, AuditRow, InviteRow, NewInvite, Scope, WorkspaceRow},
    validate,
};

/// Makes an invite to a workspace the caller is admin of. Invites to the server itself are its operator's to make.
pub(crate) async fn create(call: &mut Call, message: proto::CreateInviteRequest) -> Result<proto::InviteToken, Status> {
    let wanted = Wanted {
        workspace_ids: &message.workspace_ids,
        expires_at: message.expires_at,
        token: &message.token,
        kek_encrypted: &message.kek_encrypted,
        kek_nonce: &message.kek_nonce,
        max_uses: None,
    };
    let made = create_wanted(call, &wanted).await?;
    Ok(answer(made, message.token))
}

/// The same for so many uses.
pub(crate) async fn create_limited(
    call: &mut Call,
    message: identity::CreateInviteRequest,
) -> Result<identity::Invite, Status> {
    if message.max_uses == 0 {
        return Err(Status::invalid_argument("max_uses must be at least 1"));
    }
    let wanted = Wanted {
        workspace_ids: std::slice::from_ref(&message.workspace_id),
        expires_at: message.expires_at,
        token: &message.token,
        kek_encrypted: &message.kek_encrypted,
        kek_nonce: &message.kek_nonce,
        max_uses: Some(message.max_uses),
    };
    let made = create_wanted(call, &wanted).await?;
    Ok(counted(made, message.token))
}

/// An invite as a client wants it.
struct Wanted<'a> {
    workspace_ids: &'a [String],
    expires_at: i64,
    token: &'a str,
    kek_encrypted: &'a [u8],
    kek_nonce: &'a [u8],
    max_uses: Option<u32>,
}

async fn create_wanted(call: &mut Call, wanted: &Wanted<'_>) -> Result<InviteRow, Status> {
    let user_id = call.caller.user_id()?.to_owned();
    let Some((first, others)) = wanted.workspace_ids.split_first() else {
        return Err(Status::permission_denied(
            "an invite without a workspace is made on the server: zopp-server invite create",
        ));
    };
    let id = validate::id("workspace_ids", first)?;
    if others.iter().any(|other| other != first) {
        return Err(Status::invalid_argument(
            "an invite carries one key and so brings one workspace; make an invite for each workspace",
        ));
    }
    if !call.state.store.is_workspace_of_user(&id, &user_id).await.map_err(from_store)? {
        return Err(Status::not_found(format!("workspace {id:?} not found or access denied")));
    }
    call.rely_on_membership(&id);
    call.require(&place(&id), Role::Admin).await?;
    let token = validate::token(wanted.token)?;
    let now = clock::now();
    if wanted.expires_at <= now {
        return Err(Status::invalid_argument("expires_at must be in the future (Unix seconds)"));
    }
    if wanted.expires_at > call.state.policy.latest_expiry(now) {
        return Err(Status::invalid_argument(format!(
            "an invite can be good for at most {} hours on this server (--invite-max-hours); choose an earlier expires_at",
            call.state.policy.invite_max_hours
        )));
    }
    let has_key = !wanted.kek_encrypted.is_empty();
    if has_key {
        validate::wrapped_key("kek_encrypted", wanted.kek_encrypted)?;
        validate::nonce("kek_nonce", wanted.kek_nonce)?;
    }
    let workspace_ids = [id];
    let invite = NewInvite {
        token,
        workspace_ids: &workspace_ids,
        expires_at: wanted.expires_at,
        kek_encrypted: has_key.then_some(wanted.kek_encrypted),
        kek_nonce: has_key.then_some(wanted.kek_nonce),
        max_uses: wanted.max_uses,
    };
    let mut audit = call.audit("");
    audit.workspace_id = workspace_ids.first().cloned();
    call.state
        .store
        .create_invite(&invite, Some((&user_id, &audit)))
        .await
        .map_err(or_exists("an invite with this token, made by", "somebody"))
}

/// Returns the invite of a token, unless it has expired. A holder of the code can open the key in the response, so the response counts as a
/// use of a limited invite.
pub(crate) async fn get(
    state: &State,
    request: Request<proto::GetInviteRequest>,
) -> Result<proto::InviteToken, Status> {
    admit_open(state, &request, Action::InviteRead).await?;
    let client_ip = client_ip(&request);
    let message = request.into_inner();
    validate::token(&message.token)?;
    let not_found = || Status::not_found("invite not found, expired or used up; ask for a new one");
    let invite = state.store.invite(&message.token).await.map_err(from_store)?.ok_or_else(not_found)?;
    if invite.expires_at <= clock::now() || invite.is_used_up() {
        return Err(not_found());
    }
    if invite.kek_encrypted.is_some() && invite.max_uses.is_some() {
        let audit = AuditRow {
            principal_id: NOBODY.into(),
            resource_id: invite.id.clone(),
            workspace_id: invite.workspaces.first().map(|workspace| workspace.id.clone()),
            client_ip,
            ..blank_row(Action::InviteRead, "invite")
        };
        if !state.store.count_read(&invite, &audit).await.map_err(from_store)? {
            return Err(not_found());
        }
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

/// The same, with how often each was used.
pub(crate) async fn list_counted(
    call: &mut Call,
    _: identity::ListInvitesRequest,
) -> Result<identity::ListInvitesResponse, Status> {
    let rows = call.state.store.invites(Some(call.caller.user_id()?)).await.map_err(from_store)?;
    let invites = rows
        .into_iter()
        .map(|row| {
            let name = hex::encode(&row.token_hash);
            counted(row, name)
        })
        .collect();
    Ok(identity::ListInvitesResponse { invites })
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

fn counted(row: InviteRow, token: String) -> identity::Invite {
    let uses = row.uses_or_reads();
    identity::Invite {
        id: row.id,
        token,
        workspace_ids: row.workspaces.into_iter().map(|workspace| workspace.id).collect(),
        created_at: row.created_at,
        expires_at: row.expires_at,
        uses,
        max_uses: row.max_uses,
    }
}

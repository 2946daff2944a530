//! Workspaces and their keys.

use konverge_zopp_proto as proto;
use tonic::Status;

use crate::{
    call::{Access, Call},
    rbac::Role,
    status::{from_store, or_exists},
    store::{Admitted, KeyWrap, NewWorkspace, StoreError},
    validate,
};

/// Makes a workspace that the caller's user owns.
pub(crate) async fn create(
    call: &mut Call,
    message: proto::CreateWorkspaceRequest,
) -> Result<proto::Workspace, Status> {
    let owner = call.caller.user_id()?.to_owned();
    let id = validate::id("id", &message.id)?;
    let name = validate::name("workspace name", &message.name)?;
    let wrap = key_wrap(&message.ephemeral_pub, &message.kek_wrapped, &message.kek_nonce)?;
    let mut kdf_salt = [0; 32];
    getrandom::fill(&mut kdf_salt).map_err(|error| {
        tracing::error!(%error, "the operating system gave no random bytes");
        Status::internal("the server could not complete the request; its log says why")
    })?;
    let mut audit = call.audit(&id);
    audit.workspace_id = Some(id.clone());
    let workspace = NewWorkspace { id: &id, name, kdf_salt };
    call.state
        .store
        .create_workspace(&workspace, &owner, &call.caller.principal.id, &wrap, &audit)
        .await
        .map_err(or_exists("workspace", name))?;
    Ok(proto::Workspace { id, name: message.name })
}

/// The workspaces of the caller's user.
pub(crate) async fn list(call: &mut Call, _: proto::Empty) -> Result<proto::WorkspaceList, Status> {
    let (user_id, principal_id) = (call.caller.user_id()?, &call.caller.principal.id);
    let rows = call.state.store.workspaces_of_user(user_id, principal_id).await.map_err(from_store)?;
    let workspaces = rows.into_iter().map(|row| proto::Workspace { id: row.id, name: row.name }).collect();
    Ok(proto::WorkspaceList { workspaces })
}

/// The workspace key as wrapped for the caller.
pub(crate) async fn keys(
    call: &mut Call,
    message: proto::GetWorkspaceKeysRequest,
) -> Result<proto::WorkspaceKeys, Status> {
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    let wrap = call
        .state
        .store
        .key_wrap(&place.workspace.id, &call.caller.principal.id)
        .await
        .map_err(from_store)?
        .ok_or_else(|| {
            Status::not_found(format!(
                "workspace {:?} has no key for this principal; ask a member to grant it access",
                message.workspace_name
            ))
        })?;
    Ok(proto::WorkspaceKeys {
        workspace_id: place.workspace.id,
        ephemeral_pub: wrap.ephemeral_pub,
        kek_wrapped: wrap.kek_wrapped,
        kek_nonce: wrap.kek_nonce,
    })
}

/// Keeps the workspace key wrapped for another principal: for one of the caller's own, or as an admin.
pub(crate) async fn grant_access(
    call: &mut Call,
    message: proto::GrantPrincipalWorkspaceAccessRequest,
) -> Result<proto::Empty, Status> {
    let Some(user_id) = call.caller.principal.user_id.clone() else {
        return Err(Status::permission_denied("service principals cannot grant access to a workspace"));
    };
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    let target = match validate::id("principal_id", &message.principal_id) {
        Ok(id) => call.state.store.principal(&id).await.map_err(from_store)?,
        Err(_) => None,
    };
    let own = target.as_ref().is_some_and(|target| target.user_id.as_ref() == Some(&user_id));
    if !own {
        call.require(&place, Role::Admin).await?;
    }
    validate::id("principal_id", &message.principal_id)?;
    let target = target.ok_or_else(|| not_found(&message.principal_id))?;
    let wrap = key_wrap(&message.ephemeral_pub, &message.kek_wrapped, &message.kek_nonce)?;
    let audit = call.audit(&target.id);
    let caller = &call.caller.principal;
    let admitted = call.state.store.grant_access(caller, &place.workspace.id, &target, &wrap, &audit).await;
    let admitted = admitted.map_err(|error| match error {
        StoreError::Duplicate => Status::already_exists(format!(
            "principal {:?} has access to workspace {:?} already",
            target.id, place.workspace.name
        )),
        other => from_store(other),
    })?;
    match admitted {
        Admitted::Done => Ok(proto::Empty {}),
        Admitted::Disabled => Err(Status::failed_precondition(format!("principal {:?} is disabled", target.id))),
        Admitted::Barred => Err(Status::permission_denied(format!(
            "principal {:?} was taken out of workspace {:?}; ask an admin of the workspace to grant it access again",
            target.id, place.workspace.name
        ))),
    }
}

/// A wrapped workspace key, with all three parts of the right length.
pub(crate) fn key_wrap(ephemeral_pub: &[u8], kek_wrapped: &[u8], kek_nonce: &[u8]) -> Result<KeyWrap, Status> {
    Ok(KeyWrap {
        ephemeral_pub: validate::ephemeral_key(ephemeral_pub)?,
        kek_wrapped: validate::wrapped_key("kek_wrapped", kek_wrapped)?,
        kek_nonce: validate::nonce("kek_nonce", kek_nonce)?,
    })
}

/// For a principal that is not there.
pub(crate) fn not_found(id: &str) -> Status {
    Status::not_found(format!("principal {id:?} not found"))
}

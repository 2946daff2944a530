//! Losing an identity: the calls of Konverge's own.

use konverge_zopp_proto::identity as proto;
use tonic::Status;

use super::workspaces::not_found;
use crate::{
    call::{Access, Call},
    events::Event,
    place::Place,
    rbac::Role,
    status::from_store,
    store::Kept,
    validate,
};

/// Disables a principal everywhere at once.
pub(crate) async fn disable(
    call: &mut Call,
    message: proto::DisablePrincipalRequest,
) -> Result<proto::DisablePrincipalResponse, Status> {
    let name = set_disabled(call, &message.principal_id, true, message.even_if_last_key).await?;
    Ok(proto::DisablePrincipalResponse { name })
}

/// Enables a disabled principal.
pub(crate) async fn enable(
    call: &mut Call,
    message: proto::EnablePrincipalRequest,
) -> Result<proto::EnablePrincipalResponse, Status> {
    let name = set_disabled(call, &message.principal_id, false, false).await?;
    Ok(proto::EnablePrincipalResponse { name })
}

async fn set_disabled(call: &mut Call, id: &str, disabled: bool, even_if_last_key: bool) -> Result<String, Status> {
    let id = validate::id("principal_id", id)?;
    let audit = call.audit(&id);
    let caller = Some(&call.caller.principal);
    let changed = call.state.store.set_principal_disabled(caller, &id, disabled, even_if_last_key, &audit).await;
    let name = changed.map_err(from_store)?.map_err(|kept| match kept {
        Kept::Unknown => not_found(&id),
        Kept::LastKey(workspaces) => Status::failed_precondition(format!(
            "this principal holds the last copy of a key that can be handed on, of {}; grant another device of a member access \
             first, or disable it all the same with even_if_last_key",
            list(&workspaces)
        )),
        other => refused(&other),
    })?;
    if disabled {
        call.state.announce_losses(vec![id]);
    }
    Ok(name)
}

/// Takes a user out of a workspace.
pub(crate) async fn remove_member(
    call: &mut Call,
    message: proto::RemoveMemberRequest,
) -> Result<proto::RemoveMemberResponse, Status> {
    let own_id = call.caller.user_id()?.to_owned();
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    let email = validate::email(&message.user_email)?;
    let user_id = call.state.store.user_by_email(&email).await.map_err(from_store)?;
    // Leaving takes no role.
    if user_id.as_ref() != Some(&own_id) {
        call.require(&place, Role::Admin).await?;
    }
    let user_id = member(call, &place, &email, user_id).await?;
    let audit = call.audit(&user_id);
    let removed = call.state.store.remove_member(&place.workspace.id, &user_id, &audit).await.map_err(from_store)?;
    let removed = removed.map_err(|kept| match kept {
        Kept::Owner(_) => Status::failed_precondition("the owner cannot be removed; transfer the ownership first"),
        Kept::LastKey(_) => Status::failed_precondition(
            "this member holds the last copy of the workspace's key that can be handed on; grant another member's device access first",
        ),
        other => refused(&other),
    })?;
    call.state.announce_losses(removed.principal_ids);
    Ok(proto::RemoveMemberResponse { keys_removed: count(removed.keys), invites_revoked: count(removed.invites) })
}

/// Makes a member the owner of a workspace.
pub(crate) async fn transfer_ownership(
    call: &mut Call,
    message: proto::TransferOwnershipRequest,
) -> Result<proto::TransferOwnershipResponse, Status> {
    call.caller.user_id()?;
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    call.require(&place, Role::Admin).await?;
    let email = validate::email(&message.user_email)?;
    let user_id = call.state.store.user_by_email(&email).await.map_err(from_store)?;
    let user_id = member(call, &place, &email, user_id).await?;
    let audit = call.audit(&user_id);
    let caller = &call.caller.principal;
    let transferred = call.state.store.transfer_ownership(caller, &place.workspace.id, &user_id, &audit).await;
    transferred.map_err(from_store)?.map_err(|kept| match kept {
        Kept::NotYours => Status::permission_denied("only the owner hands a workspace on"),
        other => refused(&other),
    })?;
    Ok(proto::TransferOwnershipResponse {})
}

/// Deletes a workspace with everything in it.
pub(crate) async fn delete_workspace(
    call: &mut Call,
    message: proto::DeleteWorkspaceRequest,
) -> Result<proto::DeleteWorkspaceResponse, Status> {
    call.caller.user_id()?;
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    call.require(&place, Role::Admin).await?;
    let (id, even_if_not_empty) = (&place.workspace.id, message.even_if_not_empty);
    let audit = call.audit(id);
    let deleted = call.state.store.delete_workspace(&call.caller.principal, id, even_if_not_empty, &audit).await;
    let deleted = deleted.map_err(from_store)?.map_err(|kept| match kept {
        Kept::NotYours => Status::permission_denied("only the owner deletes a workspace"),
        Kept::NotEmpty(environments) => Status::failed_precondition(format!(
            "workspace {:?} has {environments} environments, whose secrets would be lost; delete them first, or set even_if_not_empty",
            place.workspace.name
        )),
        other => refused(&other),
    })?;
    for environment in &deleted.environment_ids {
        call.state.events.publish(environment, Event::EnvironmentDeleted);
    }
    let number = |ids: &[String]| count(u64::try_from(ids.len()).unwrap_or(u64::MAX));
    let (environments_deleted, services_removed) = (number(&deleted.environment_ids), number(&deleted.service_ids));
    call.state.announce_losses(deleted.service_ids);
    Ok(proto::DeleteWorkspaceResponse {
        environments_deleted,
        services_removed,
        invites_revoked: count(deleted.invites),
    })
}

/// Removes the caller's own user.
pub(crate) async fn remove_user(
    call: &mut Call,
    message: proto::RemoveUserRequest,
) -> Result<proto::RemoveUserResponse, Status> {
    let own_id = call.caller.user_id()?.to_owned();
    let email = validate::email(&message.user_email)?;
    if call.state.store.user_by_email(&email).await.map_err(from_store)?.as_ref() != Some(&own_id) {
        return Err(Status::permission_denied(
            "a user removes only itself; the operator of the server removes others: zopp-server user remove",
        ));
    }
    let audit = call.audit(&own_id);
    let removed = call.state.store.remove_user(Some(&call.caller.principal), &own_id, &audit).await;
    let removed = removed.map_err(from_store)?.map_err(|kept| match kept {
        Kept::Owner(workspaces) => Status::failed_precondition(format!(
            "the user owns {}; transfer the ownership first",
            list(&workspaces)
        )),
        Kept::LastKey(workspaces) => Status::failed_precondition(format!(
            "the user holds the last copy of a key that can be handed on, of {}; grant another member's device access first",
            list(&workspaces)
        )),
        other => refused(&other),
    })?;
    let principals_removed = count(u64::try_from(removed.principal_ids.len()).unwrap_or(u64::MAX));
    call.state.announce_losses(removed.principal_ids);
    Ok(proto::RemoveUserResponse { principals_removed, invites_revoked: count(removed.invites) })
}

/// The id of a user who is a member, or was found to be none.
async fn member(call: &Call, place: &Place, email: &str, user_id: Option<String>) -> Result<String, Status> {
    let not_found =
        || Status::not_found(format!("user {email:?} is no member of workspace {:?}", place.workspace.name));
    let user_id = user_id.ok_or_else(not_found)?;
    let is_member = call.state.store.is_workspace_of_user(&place.workspace.id, &user_id).await.map_err(from_store)?;
    if is_member { Ok(user_id) } else { Err(not_found()) }
}

fn refused(kept: &Kept) -> Status {
    match kept {
        Kept::Ceiling => Status::permission_denied(
            "this device is under a ceiling, so it decides about no other one; use a device without a ceiling",
        ),
        Kept::NoKey => Status::failed_precondition(
            "this member has no device that holds the workspace's key; grant one access first",
        ),
        Kept::NotYours | Kept::Unknown | Kept::Owner(_) | Kept::LastKey(_) | Kept::NotEmpty(_) => {
            Status::permission_denied(
                "only the principal's own user disables and enables it; a service, an admin of every workspace that it is in; any \
             principal, the operator of the server (zopp-server principal)",
            )
        }
    }
}

fn list(workspaces: &[String]) -> String {
    let names: Vec<_> = workspaces.iter().map(|name| format!("{name:?}")).collect();
    format!("workspace {}", names.join(", "))
}

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

//! Principals: looking them up, naming them, taking a workspace away from them.

use konverge_zopp_proto as proto;
use tonic::Status;

use super::{roles, workspaces::not_found};
use crate::{
    call::{Access, Call},
    rbac::Role,
    status::{from_store, or_exists},
    store::{PrincipalRow, Removal, RevokedAll, ServicePrincipalRow},
    validate,
};

/// Any principal's public keys: granting access needs them.
pub(crate) async fn get(call: &mut Call, message: proto::GetPrincipalRequest) -> Result<proto::Principal, Status> {
    find(call, &message.principal_id).await.map(answer)
}

/// Renames a principal of the caller's user.
pub(crate) async fn rename(call: &mut Call, message: proto::RenamePrincipalRequest) -> Result<proto::Empty, Status> {
    let Some(user_id) = call.caller.principal.user_id.clone() else {
        return Err(Status::permission_denied("service principals cannot rename principals"));
    };
    let principal = find(call, &message.principal_id).await?;
    if principal.user_id != Some(user_id) {
        return Err(Status::permission_denied("only your own principals can be renamed"));
    }
    let name = validate::name("new_name", &message.new_name)?;
    let audit = call.audit(&principal.id);
    call.state
        .store
        .rename_principal(&principal.id, name, &audit)
        .await
        .map_err(or_exists("a principal named", name))?;
    Ok(proto::Empty {})
}

/// The principals of the caller's user.
pub(crate) async fn list(call: &mut Call, _: proto::Empty) -> Result<proto::PrincipalList, Status> {
    let rows = call.state.store.principals_of_user(call.caller.user_id()?).await.map_err(from_store)?;
    Ok(proto::PrincipalList { principals: rows.into_iter().map(answer).collect() })
}

/// The service principals that hold the key of a workspace.
pub(crate) async fn list_services(
    call: &mut Call,
    message: proto::ListWorkspaceServicePrincipalsRequest,
) -> Result<proto::ServicePrincipalList, Status> {
    call.caller.user_id()?;
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    let rows = call.state.store.service_principals(&place.workspace.id).await.map_err(from_store)?;
    Ok(proto::ServicePrincipalList { service_principals: rows.into_iter().map(service).collect() })
}

/// Takes the key and all grants in a workspace from another principal, and the workspace from a person's device.
pub(crate) async fn remove_from_workspace(
    call: &mut Call,
    message: proto::RemovePrincipalFromWorkspaceRequest,
) -> Result<proto::Empty, Status> {
    call.caller.user_id()?;
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    call.require(&place, Role::Admin).await?;
    let id = validate::id("principal_id", &message.principal_id)?;
    if id == call.caller.principal.id {
        return Err(Status::invalid_argument("a principal cannot remove itself; use another one"));
    }
    let audit = call.audit(&id);
    let caller = &call.caller.principal;
    let removal = call
        .state
        .store
        .remove_principal_from_workspace(caller, &place.workspace.id, &id, &audit)
        .await
        .map_err(from_store)?;
    match removal {
        Removal::Done => {
            call.state.announce_losses(vec![id]);
            Ok(proto::Empty {})
        }
        Removal::OwnersKey => {
            Err(Status::permission_denied("only the owner of the workspace takes it from the owner's devices"))
        }
        Removal::LastCopy => Err(Status::failed_precondition(
            "this principal holds the last copy of the workspace's key that can be handed on; grant another device of a member \
             access first",
        )),
    }
}

/// Takes all grants in a workspace from a principal, and tells what it may afterwards.
pub(crate) async fn revoke_all(
    call: &mut Call,
    message: proto::RevokeAllPrincipalPermissionsRequest,
) -> Result<proto::RevokeAllPrincipalPermissionsResponse, Status> {
    call.caller.user_id()?;
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    call.require(&place, Role::Admin).await?;
    let id = validate::id("principal_id", &message.principal_id)?;
    let audit = call.audit(&id);
    let caller = &call.caller.principal;
    let revoked = call.state.store.revoke_all_permissions(caller, &place.workspace.id, &id, &audit).await;
    match revoked.map_err(from_store)? {
        RevokedAll::Done { removed, role } => {
            call.state.announce_losses(vec![id]);
            Ok(proto::RevokeAllPrincipalPermissionsResponse {
                permissions_revoked: i32::try_from(removed).unwrap_or(i32::MAX),
                role_afterwards: role.map(|role| roles::to_wire(role).into()),
            })
        }
        RevokedAll::Refused => Err(Status::permission_denied(
            "without its ceilings this device would have more than you have somewhere in the workspace; ask an admin who has it",
        )),
    }
}

/// The principal of an id given by a client.
pub(crate) async fn find(call: &Call, id: &str) -> Result<PrincipalRow, Status> {
    let id = validate::id("principal_id", id)?;
    call.state.store.principal(&id).await.map_err(from_store)?.ok_or_else(|| not_found(&id))
}

fn answer(row: PrincipalRow) -> proto::Principal {
    proto::Principal {
        id: row.id,
        name: row.name,
        public_key: row.public_key,
        x25519_public_key: row.x25519_public_key.unwrap_or_default(),
    }
}

fn service(row: ServicePrincipalRow) -> proto::ServicePrincipal {
    let permissions = row
        .grants
        .into_iter()
        .map(|(project, environment, role): (String, Option<String>, Role)| proto::ServicePrincipalPermission {
            scope: match environment {
                Some(environment) => format!("environment:{project}/{environment}"),
                None => format!("project:{project}"),
            },
            role: roles::to_wire(role).into(),
        })
        .collect();
    let created_at = jiff::Timestamp::from_second(row.created_at).map(|time| time.to_string()).unwrap_or_default();
    proto::ServicePrincipal { id: row.id, name: row.name, created_at, permissions }
}

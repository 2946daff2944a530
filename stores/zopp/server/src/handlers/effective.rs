//! The roles that a principal has in a workspace, place by place.

use konverge_zopp_proto as proto;
use tonic::Status;

use super::{principals::find, roles};
use crate::{
    call::{Access, Call},
    rbac::{Holdings, Node, Role},
    status::from_store,
    store::Branch,
};

/// The effective roles of a principal: in the workspace, and in the projects and environments where it has one.
pub(crate) async fn get(
    call: &mut Call,
    message: proto::GetEffectivePermissionsRequest,
) -> Result<proto::EffectivePermissionsResponse, Status> {
    call.caller.user_id()?;
    let place = call.workspace(&message.workspace_name, Access::Member).await?;
    let principal = find(call, &message.principal_id).await?;
    let store = &call.state.store;
    let (held, branches) =
        store.effective(&place.workspace.id, &principal.id, principal.user_id.as_deref()).await.map_err(from_store)?;
    Ok(proto::EffectivePermissionsResponse {
        principal_id: principal.id,
        principal_name: principal.name,
        is_service_principal: principal.user_id.is_none(),
        workspace_role: held.role_at(&Node::Workspace).map(wire),
        projects: branches.into_iter().filter_map(|branch| project(&held, branch)).collect(),
    })
}

/// A project in which the principal has a role, or has one in an environment.
fn project(held: &Holdings, branch: Branch) -> Option<proto::EffectiveProjectPermission> {
    let effective_role = held.role_at(&Node::Project(branch.id.clone())).map(wire);
    let environments: Vec<_> = branch
        .environments
        .into_iter()
        .filter_map(|(environment_id, environment_name)| {
            let node = Node::Environment { project: branch.id.clone(), environment: environment_id.clone() };
            let effective_role = wire(held.role_at(&node)?);
            Some(proto::EffectiveEnvironmentPermission { environment_id, environment_name, effective_role })
        })
        .collect();
    if effective_role.is_none() && environments.is_empty() {
        return None;
    }
    Some(proto::EffectiveProjectPermission {
        project_id: branch.id,
        project_name: branch.name,
        effective_role,
        environments,
    })
}

fn wire(role: Role) -> i32 {
    roles::to_wire(role).into()
}

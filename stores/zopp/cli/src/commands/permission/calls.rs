//! The same four calls for three kinds of holder at three levels, each with a request type of its own.

use konverge_zopp_client::{CallError, Client};
use konverge_zopp_proto as proto;

use super::Holder;
use crate::scope::Place;

/// Calls the method of the level that a place is on.
macro_rules! at {
    (
        $client:ident, $place:ident, $fields:tt,
        $workspace:ident $workspace_request:ident,
        $project:ident $project_request:ident,
        $environment:ident $environment_request:ident
    ) => {
        match $place.clone() {
            Place::Workspace { workspace: workspace_name } => {
                $client.$workspace(at!(@ $workspace_request [workspace_name] $fields)).await
            }
            Place::Project { workspace: workspace_name, project: project_name } => {
                $client.$project(at!(@ $project_request [workspace_name, project_name] $fields)).await
            }
            Place::Environment(name) => {
                let (workspace_name, project_name) = (name.workspace, name.project);
                let environment_name = name.environment;
                let request = at!(@ $environment_request [workspace_name, project_name, environment_name] $fields);
                $client.$environment(request).await
            }
        }
    };
    (@ $request:ident [$($place:ident),*] {$($field:ident),*}) => {
        proto::$request { $($place,)* $($field),* }
    };
}

/// One grant of a list.
pub(super) struct Listed {
    /// The id of a principal, the address of a user, the name of a group.
    pub holder: String,
    /// The id of the holder.
    pub id: String,
    /// The name of a principal or group, the address of a user.
    pub name: String,
    pub role: proto::Role,
}

/// A kind of holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Kind {
    Principal,
    User,
    Group,
}

pub(super) async fn set(client: &Client, place: &Place, holder: &Holder, role: proto::Role) -> Result<(), CallError> {
    let role = role.into();
    match holder.clone() {
        Holder::Principal { principal_id } => at!(
            client, place, { principal_id, role },
            set_workspace_permission SetWorkspacePermissionRequest,
            set_project_permission SetProjectPermissionRequest,
            set_environment_permission SetEnvironmentPermissionRequest
        ),
        Holder::User { user_email, allow_non_member } => at!(
            client, place, { user_email, role, allow_non_member },
            set_user_workspace_permission SetUserWorkspacePermissionRequest,
            set_user_project_permission SetUserProjectPermissionRequest,
            set_user_environment_permission SetUserEnvironmentPermissionRequest
        ),
        Holder::Group { group: group_name } => at!(
            client, place, { group_name, role },
            set_group_workspace_permission SetGroupWorkspacePermissionRequest,
            set_group_project_permission SetGroupProjectPermissionRequest,
            set_group_environment_permission SetGroupEnvironmentPermissionRequest
        ),
    }
    .map(|_| ())
}

pub(super) async fn get(client: &Client, place: &Place, holder: &Holder) -> Result<proto::Role, CallError> {
    match holder.clone() {
        Holder::Principal { principal_id } => at!(
            client, place, { principal_id },
            get_workspace_permission GetWorkspacePermissionRequest,
            get_project_permission GetProjectPermissionRequest,
            get_environment_permission GetEnvironmentPermissionRequest
        ),
        Holder::User { user_email, .. } => at!(
            client, place, { user_email },
            get_user_workspace_permission GetUserWorkspacePermissionRequest,
            get_user_project_permission GetUserProjectPermissionRequest,
            get_user_environment_permission GetUserEnvironmentPermissionRequest
        ),
        Holder::Group { group: group_name } => at!(
            client, place, { group_name },
            get_group_workspace_permission GetGroupWorkspacePermissionRequest,
            get_group_project_permission GetGroupProjectPermissionRequest,
            get_group_environment_permission GetGroupEnvironmentPermissionRequest
        ),
    }
    .map(|answer| answer.role())
}

pub(super) async fn remove(client: &Client, place: &Place, holder: &Holder) -> Result<(), CallError> {
    match holder.clone() {
        Holder::Principal { principal_id } => at!(
            client, place, { principal_id },
            remove_workspace_permission RemoveWorkspacePermissionRequest,
            remove_project_permission RemoveProjectPermissionRequest,
            remove_environment_permission RemoveEnvironmentPermissionRequest
        ),
        Holder::User { user_email, .. } => at!(
            client, place, { user_email },
            remove_user_workspace_permission RemoveUserWorkspacePermissionRequest,
            remove_user_project_permission RemoveUserProjectPermissionRequest,
            remove_user_environment_permission RemoveUserEnvironmentPermissionRequest
        ),
        Holder::Group { group: group_name } => at!(
            client, place, { group_name },
            remove_group_workspace_permission RemoveGroupWorkspacePermissionRequest,
            remove_group_project_permission RemoveGroupProjectPermissionRequest,
            remove_group_environment_permission RemoveGroupEnvironmentPermissionRequest
        ),
    }
    .map(|_| ())
}

pub(super) async fn list(client: &Client, place: &Place, kind: Kind) -> Result<Vec<Listed>, CallError> {
    Ok(match kind {
        Kind::Principal => at!(
            client, place, {},
            list_workspace_permissions ListWorkspacePermissionsRequest,
            list_project_permissions ListProjectPermissionsRequest,
            list_environment_permissions ListEnvironmentPermissionsRequest
        )?
        .permissions
        .into_iter()
        .map(|grant| Listed {
            role: grant.role(),
            holder: grant.principal_id.clone(),
            id: grant.principal_id,
            name: grant.principal_name,
        })
        .collect(),
        Kind::User => at!(
            client, place, {},
            list_user_workspace_permissions ListUserWorkspacePermissionsRequest,
            list_user_project_permissions ListUserProjectPermissionsRequest,
            list_user_environment_permissions ListUserEnvironmentPermissionsRequest
        )?
        .permissions
        .into_iter()
        .map(|grant| Listed {
            role: grant.role(),
            holder: grant.user_email.clone(),
            id: grant.user_id,
            name: grant.user_email,
        })
        .collect(),
        Kind::Group => at!(
            client, place, {},
            list_group_workspace_permissions ListGroupWorkspacePermissionsRequest,
            list_group_project_permissions ListGroupProjectPermissionsRequest,
            list_group_environment_permissions ListGroupEnvironmentPermissionsRequest
        )?
        .permissions
        .into_iter()
        .map(|grant| Listed {
            role: grant.role(),
            holder: grant.group_name.clone(),
            id: grant.group_id,
            name: grant.group_name,
        })
        .collect(),
    })
}

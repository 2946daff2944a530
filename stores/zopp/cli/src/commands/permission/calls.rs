//! The same four calls at three levels, each with a request type of its own.

use konverge_zopp_client::{CallError, Client};
use konverge_zopp_proto::{
    GetEnvironmentPermissionRequest, GetProjectPermissionRequest, GetWorkspacePermissionRequest,
    ListEnvironmentPermissionsRequest, ListProjectPermissionsRequest, ListWorkspacePermissionsRequest, Permission,
    RemoveEnvironmentPermissionRequest, RemoveProjectPermissionRequest, RemoveWorkspacePermissionRequest, Role,
    SetEnvironmentPermissionRequest, SetProjectPermissionRequest, SetWorkspacePermissionRequest,
};

use crate::scope::Place;

pub(super) async fn set(client: &Client, place: &Place, principal: &str, role: Role) -> Result<(), CallError> {
    let (principal_id, role) = (principal.to_owned(), role.into());
    match place.clone() {
        Place::Workspace { workspace: workspace_name } => {
            let request = SetWorkspacePermissionRequest { workspace_name, principal_id, role };
            client.set_workspace_permission(request).await
        }
        Place::Project { workspace: workspace_name, project: project_name } => {
            let request = SetProjectPermissionRequest { workspace_name, project_name, principal_id, role };
            client.set_project_permission(request).await
        }
        Place::Environment(name) => {
            let request = SetEnvironmentPermissionRequest {
                workspace_name: name.workspace,
                project_name: name.project,
                environment_name: name.environment,
                principal_id,
                role,
            };
            client.set_environment_permission(request).await
        }
    }
    .map(|_| ())
}

pub(super) async fn get(client: &Client, place: &Place, principal: &str) -> Result<Role, CallError> {
    let principal_id = principal.to_owned();
    match place.clone() {
        Place::Workspace { workspace: workspace_name } => {
            client.get_workspace_permission(GetWorkspacePermissionRequest { workspace_name, principal_id }).await
        }
        Place::Project { workspace: workspace_name, project: project_name } => {
            let request = GetProjectPermissionRequest { workspace_name, project_name, principal_id };
            client.get_project_permission(request).await
        }
        Place::Environment(name) => {
            let request = GetEnvironmentPermissionRequest {
                workspace_name: name.workspace,
                project_name: name.project,
                environment_name: name.environment,
                principal_id,
            };
            client.get_environment_permission(request).await
        }
    }
    .map(|answer| answer.role())
}

pub(super) async fn list(client: &Client, place: &Place) -> Result<Vec<Permission>, CallError> {
    match place.clone() {
        Place::Workspace { workspace: workspace_name } => {
            client.list_workspace_permissions(ListWorkspacePermissionsRequest { workspace_name }).await
        }
        Place::Project { workspace: workspace_name, project: project_name } => {
            client.list_project_permissions(ListProjectPermissionsRequest { workspace_name, project_name }).await
        }
        Place::Environment(name) => {
            let request = ListEnvironmentPermissionsRequest {
                workspace_name: name.workspace,
                project_name: name.project,
                environment_name: name.environment,
            };
            client.list_environment_permissions(request).await
        }
    }
    .map(|answer| answer.permissions)
}

pub(super) async fn remove(client: &Client, place: &Place, principal: &str) -> Result<(), CallError> {
    let principal_id = principal.to_owned();
    match place.clone() {
        Place::Workspace { workspace: workspace_name } => {
            client.remove_workspace_permission(RemoveWorkspacePermissionRequest { workspace_name, principal_id }).await
        }
        Place::Project { workspace: workspace_name, project: project_name } => {
            let request = RemoveProjectPermissionRequest { workspace_name, project_name, principal_id };
            client.remove_project_permission(request).await
        }
        Place::Environment(name) => {
            let request = RemoveEnvironmentPermissionRequest {
                workspace_name: name.workspace,
                project_name: name.project,
                environment_name: name.environment,
                principal_id,
            };
            client.remove_environment_permission(request).await
        }
    }
    .map(|_| ())
}

//! Users of one workspace, and the calls that concern their roles.

use konverge_zopp_proto::{self as proto, Role};
use tonic::Status;

use crate::harness::{Person, names};

/// A signed call: `call!(person, create_group: "CreateGroup", request)`.
macro_rules! call {
    ($person:expr, $method:ident: $name:literal, $request:expr) => {{
        let request = $person.sign($name, $request);
        $person.client.clone().$method(request).await.map(tonic::Response::into_inner)
    }};
}

pub(crate) use call;

impl Person {
    /// Sets the grant of a user on the workspace.
    pub(crate) async fn grant_user(&self, email: &str, role: Role) -> Result<(), Status> {
        let request = proto::SetUserWorkspacePermissionRequest {
            workspace_name: "acme".into(),
            user_email: email.into(),
            role: role.into(),
            allow_non_member: false,
        };
        call!(self, set_user_workspace_permission: "SetUserWorkspacePermission", request).map(drop)
    }

    /// Removes the grant of a user on the workspace.
    pub(crate) async fn revoke_user(&self, email: &str) -> Result<(), Status> {
        let request =
            proto::RemoveUserWorkspacePermissionRequest { workspace_name: "acme".into(), user_email: email.into() };
        call!(self, remove_user_workspace_permission: "RemoveUserWorkspacePermission", request).map(drop)
    }

    /// Sets the ceiling or grant of a principal on the environment.
    pub(crate) async fn limit(&self, principal_id: &str, role: Role) -> Result<(), Status> {
        let [workspace_name, project_name, environment_name] = names();
        let request = proto::SetEnvironmentPermissionRequest {
            workspace_name,
            project_name,
            environment_name,
            principal_id: principal_id.into(),
            role: role.into(),
        };
        call!(self, set_environment_permission: "SetEnvironmentPermission", request).map(drop)
    }

    pub(crate) async fn create_group(&self, name: &str) -> Result<proto::Group, Status> {
        let request = proto::CreateGroupRequest {
            workspace_name: "acme".into(),
            name: name.into(),
            description: format!("the {name}"),
        };
        call!(self, create_group: "CreateGroup", request)
    }

    pub(crate) async fn add_to_group(&self, group: &str, email: &str) -> Result<(), Status> {
        let request = proto::AddGroupMemberRequest {
            workspace_name: "acme".into(),
            group_name: group.into(),
            user_email: email.into(),
            allow_non_member: false,
        };
        call!(self, add_group_member: "AddGroupMember", request).map(drop)
    }

    /// Sets the grant of a group on the project.
    pub(crate) async fn grant_group(&self, group: &str, role: Role) -> Result<(), Status> {
        let request = proto::SetGroupProjectPermissionRequest {
            workspace_name: "acme".into(),
            project_name: "backend".into(),
            group_name: group.into(),
            role: role.into(),
        };
        call!(self, set_group_project_permission: "SetGroupProjectPermission", request).map(drop)
    }

    pub(crate) async fn effective(&self, principal_id: &str) -> Result<proto::EffectivePermissionsResponse, Status> {
        let request =
            proto::GetEffectivePermissionsRequest { workspace_name: "acme".into(), principal_id: principal_id.into() };
        call!(self, get_effective_permissions: "GetEffectivePermissions", request)
    }
}

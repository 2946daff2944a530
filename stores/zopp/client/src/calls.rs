//! The table of the contract's calls: which request gives which answer, and whether it is signed. Calls that hand over a key are in
//! [`crate::registration`], our own calls in [`crate::lifecycle`] and [`crate::secrets`].

use bytes::Bytes;
use konverge_zopp_proto as proto;
use prost::Message;

use crate::{
    client::Client,
    connection::{Connection, Rpc},
    error::CallError,
};

macro_rules! rpc {
    ($name:literal) => {
        Rpc { name: $name, path: concat!("/zopp.ZoppService/", $name) }
    };
}

macro_rules! open_calls {
    ($($method:ident($request:ident) -> $answer:ident = $name:literal;)*) => {
        /// Calls that prove nothing but the knowledge of what is in the request.
        impl Connection {
            $(
                #[doc = concat!("Calls `", $name, "`, unsigned.")]
                pub async fn $method(&self, request: proto::$request) -> Result<proto::$answer, CallError> {
                    self.unary(rpc!($name), Bytes::from(request.encode_to_vec()), None).await
                }
            )*
        }
    };
}

macro_rules! signed_calls {
    ($($method:ident($request:ident) -> $answer:ident = $name:literal;)*) => {
        /// Calls in the name of the client's identity.
        impl Client {
            $(
                #[doc = concat!("Calls `", $name, "`, signed.")]
                pub async fn $method(&self, request: proto::$request) -> Result<proto::$answer, CallError> {
                    self.call(rpc!($name), &request).await
                }
            )*
        }
    };
}

open_calls! {
    get_invite(GetInviteRequest) -> InviteToken = "GetInvite";
    get_principal_export(GetPrincipalExportRequest) -> GetPrincipalExportResponse = "GetPrincipalExport";
    consume_principal_export(ConsumePrincipalExportRequest) -> Empty = "ConsumePrincipalExport";
}

signed_calls! {
    list_workspaces(Empty) -> WorkspaceList = "ListWorkspaces";
    get_workspace_keys(GetWorkspaceKeysRequest) -> WorkspaceKeys = "GetWorkspaceKeys";

    list_invites(Empty) -> InviteList = "ListInvites";
    revoke_invite(RevokeInviteRequest) -> Empty = "RevokeInvite";

    get_principal(GetPrincipalRequest) -> Principal = "GetPrincipal";
    rename_principal(RenamePrincipalRequest) -> Empty = "RenamePrincipal";
    list_workspace_service_principals(ListWorkspaceServicePrincipalsRequest) -> ServicePrincipalList
        = "ListWorkspaceServicePrincipals";
    remove_principal_from_workspace(RemovePrincipalFromWorkspaceRequest) -> Empty = "RemovePrincipalFromWorkspace";
    revoke_all_principal_permissions(RevokeAllPrincipalPermissionsRequest) -> RevokeAllPrincipalPermissionsResponse
        = "RevokeAllPrincipalPermissions";

    create_project(CreateProjectRequest) -> Project = "CreateProject";
    list_projects(ListProjectsRequest) -> ProjectList = "ListProjects";
    get_project(GetProjectRequest) -> Project = "GetProject";
    delete_project(DeleteProjectRequest) -> Empty = "DeleteProject";

    list_environments(ListEnvironmentsRequest) -> EnvironmentList = "ListEnvironments";
    get_environment(GetEnvironmentRequest) -> Environment = "GetEnvironment";
    delete_environment(DeleteEnvironmentRequest) -> Empty = "DeleteEnvironment";

    upsert_secret(UpsertSecretRequest) -> Empty = "UpsertSecret";
    get_secret(GetSecretRequest) -> Secret = "GetSecret";
    list_secrets(ListSecretsRequest) -> SecretList = "ListSecrets";
    delete_secret(DeleteSecretRequest) -> Empty = "DeleteSecret";

    set_workspace_permission(SetWorkspacePermissionRequest) -> Empty = "SetWorkspacePermission";
    get_workspace_permission(GetWorkspacePermissionRequest) -> PermissionResponse = "GetWorkspacePermission";
    list_workspace_permissions(ListWorkspacePermissionsRequest) -> PermissionList = "ListWorkspacePermissions";
    remove_workspace_permission(RemoveWorkspacePermissionRequest) -> Empty = "RemoveWorkspacePermission";

    set_project_permission(SetProjectPermissionRequest) -> Empty = "SetProjectPermission";
    get_project_permission(GetProjectPermissionRequest) -> PermissionResponse = "GetProjectPermission";
    list_project_permissions(ListProjectPermissionsRequest) -> PermissionList = "ListProjectPermissions";
    remove_project_permission(RemoveProjectPermissionRequest) -> Empty = "RemoveProjectPermission";

    set_environment_permission(SetEnvironmentPermissionRequest) -> Empty = "SetEnvironmentPermission";
    get_environment_permission(GetEnvironmentPermissionRequest) -> PermissionResponse = "GetEnvironmentPermission";
    list_environment_permissions(ListEnvironmentPermissionsRequest) -> PermissionList = "ListEnvironmentPermissions";
    remove_environment_permission(RemoveEnvironmentPermissionRequest) -> Empty = "RemoveEnvironmentPermission";

    set_user_workspace_permission(SetUserWorkspacePermissionRequest) -> Empty = "SetUserWorkspacePermission";
    get_user_workspace_permission(GetUserWorkspacePermissionRequest) -> PermissionResponse = "GetUserWorkspacePermission";
    list_user_workspace_permissions(ListUserWorkspacePermissionsRequest) -> UserPermissionList = "ListUserWorkspacePermissions";
    remove_user_workspace_permission(RemoveUserWorkspacePermissionRequest) -> Empty = "RemoveUserWorkspacePermission";

    set_user_project_permission(SetUserProjectPermissionRequest) -> Empty = "SetUserProjectPermission";
    get_user_project_permission(GetUserProjectPermissionRequest) -> PermissionResponse = "GetUserProjectPermission";
    list_user_project_permissions(ListUserProjectPermissionsRequest) -> UserPermissionList = "ListUserProjectPermissions";
    remove_user_project_permission(RemoveUserProjectPermissionRequest) -> Empty = "RemoveUserProjectPermission";

    set_user_environment_permission(SetUserEnvironmentPermissionRequest) -> Empty = "SetUserEnvironmentPermission";
    get_user_environment_permission(GetUserEnvironmentPermissionRequest) -> PermissionResponse = "GetUserEnvironmentPermission";
    list_user_environment_permissions(ListUserEnvironmentPermissionsRequest) -> UserPermissionList = "ListUserEnvironmentPermissions";
    remove_user_environment_permission(RemoveUserEnvironmentPermissionRequest) -> Empty = "RemoveUserEnvironmentPermission";

    set_group_workspace_permission(SetGroupWorkspacePermissionRequest) -> Empty = "SetGroupWorkspacePermission";
    get_group_workspace_permission(GetGroupWorkspacePermissionRequest) -> PermissionResponse = "GetGroupWorkspacePermission";
    list_group_workspace_permissions(ListGroupWorkspacePermissionsRequest) -> GroupPermissionList = "ListGroupWorkspacePermissions";
    remove_group_workspace_permission(RemoveGroupWorkspacePermissionRequest) -> Empty = "RemoveGroupWorkspacePermission";

    set_group_project_permission(SetGroupProjectPermissionRequest) -> Empty = "SetGroupProjectPermission";
    get_group_project_permission(GetGroupProjectPermissionRequest) -> PermissionResponse = "GetGroupProjectPermission";
    list_group_project_permissions(ListGroupProjectPermissionsRequest) -> GroupPermissionList = "ListGroupProjectPermissions";
    remove_group_project_permission(RemoveGroupProjectPermissionRequest) -> Empty = "RemoveGroupProjectPermission";

    set_group_environment_permission(SetGroupEnvironmentPermissionRequest) -> Empty = "SetGroupEnvironmentPermission";
    get_group_environment_permission(GetGroupEnvironmentPermissionRequest) -> PermissionResponse = "GetGroupEnvironmentPermission";
    list_group_environment_permissions(ListGroupEnvironmentPermissionsRequest) -> GroupPermissionList = "ListGroupEnvironmentPermissions";
    remove_group_environment_permission(RemoveGroupEnvironmentPermissionRequest) -> Empty = "RemoveGroupEnvironmentPermission";

    get_effective_permissions(GetEffectivePermissionsRequest) -> EffectivePermissionsResponse = "GetEffectivePermissions";

    create_group(CreateGroupRequest) -> Group = "CreateGroup";
    get_group(GetGroupRequest) -> Group = "GetGroup";
    list_groups(ListGroupsRequest) -> GroupList = "ListGroups";
    update_group(UpdateGroupRequest) -> Group = "UpdateGroup";
    delete_group(DeleteGroupRequest) -> Empty = "DeleteGroup";
    add_group_member(AddGroupMemberRequest) -> Empty = "AddGroupMember";
    remove_group_member(RemoveGroupMemberRequest) -> Empty = "RemoveGroupMember";
    list_group_members(ListGroupMembersRequest) -> GroupMemberList = "ListGroupMembers";
    list_user_groups(ListUserGroupsRequest) -> GroupList = "ListUserGroups";

    create_principal_export(CreatePrincipalExportRequest) -> CreatePrincipalExportResponse = "CreatePrincipalExport";

    list_audit_logs(ListAuditLogsRequest) -> AuditLogList = "ListAuditLogs";
    get_audit_log(GetAuditLogRequest) -> AuditLogEntry = "GetAuditLog";
    count_audit_logs(CountAuditLogsRequest) -> CountAuditLogsResponse = "CountAuditLogs";
}

//! The table of calls: which request gives which answer, and whether it is signed.

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
    join(JoinRequest) -> JoinResponse = "Join";
    get_invite(GetInviteRequest) -> InviteToken = "GetInvite";
}

signed_calls! {
    join(JoinRequest) -> JoinResponse = "Join";
    register(RegisterRequest) -> RegisterResponse = "Register";

    create_workspace(CreateWorkspaceRequest) -> Workspace = "CreateWorkspace";
    list_workspaces(Empty) -> WorkspaceList = "ListWorkspaces";
    get_workspace_keys(GetWorkspaceKeysRequest) -> WorkspaceKeys = "GetWorkspaceKeys";
    grant_principal_workspace_access(GrantPrincipalWorkspaceAccessRequest) -> Empty = "GrantPrincipalWorkspaceAccess";

    create_invite(CreateInviteRequest) -> InviteToken = "CreateInvite";
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

    create_environment(CreateEnvironmentRequest) -> Environment = "CreateEnvironment";
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
}

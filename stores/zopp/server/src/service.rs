//! The table of calls: which handler serves it, and what is put on record.

use std::sync::Arc;

use konverge_zopp_proto::{self as proto, zopp_service_server::ZoppService};
use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{
    call::{Call, Record, names},
    handlers::{
        accounts, audit, effective, environments, exports, groups, invites, permissions, principals, projects, secrets,
        watch, workspaces,
    },
    state::State,
    store::Action,
};

/// The gRPC service. Calls that are not in the table answer UNIMPLEMENTED.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    state: Arc<State>,
}

impl Service {
    /// A service on this state.
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

/// Writes the `ZoppService` implementation: signed calls from the table, the others as given.
macro_rules! service {
    (
        signed { $($method:ident($request:ident) -> $answer:ident = $name:literal, $record:expr, $handler:path $(, in $place:ident)?;)* }
        others { $($others:tt)* }
    ) => {
        #[tonic::async_trait]
        impl ZoppService for Service {
            $(
                async fn $method(
                    &self,
                    request: Request<proto::$request>,
                ) -> Result<Response<proto::$answer>, Status> {
                    let names = names!(request $($place)?);
                    let mut call = Call::open(&self.state, &request, $name, $record, names).await?;
                    let result = $handler(&mut call, request.into_inner()).await;
                    call.answer(result).await
                }
            )*
            $($others)*
        }
    };
}

use Record::{Change, Lookup, Read};

service! {
    signed {
        create_workspace(CreateWorkspaceRequest) -> Workspace = "CreateWorkspace",
            Change(Action::WorkspaceCreate, "workspace"), workspaces::create;
        list_workspaces(Empty) -> WorkspaceList = "ListWorkspaces",
            Lookup(Action::WorkspaceList, "workspace"), workspaces::list;
        get_workspace_keys(GetWorkspaceKeysRequest) -> WorkspaceKeys = "GetWorkspaceKeys",
            Read(Action::WorkspaceReadKey, "workspace"), workspaces::keys;
        grant_principal_workspace_access(GrantPrincipalWorkspaceAccessRequest) -> Empty = "GrantPrincipalWorkspaceAccess",
            Change(Action::WorkspaceGrantAccess, "principal"), workspaces::grant_access;

        create_invite(CreateInviteRequest) -> InviteToken = "CreateInvite",
            Change(Action::InviteCreate, "invite"), invites::create;
        list_invites(Empty) -> InviteList = "ListInvites",
            Lookup(Action::InviteList, "invite"), invites::list;
        revoke_invite(RevokeInviteRequest) -> Empty = "RevokeInvite",
            Change(Action::InviteRevoke, "invite"), invites::revoke;

        get_principal(GetPrincipalRequest) -> Principal = "GetPrincipal",
            Lookup(Action::PrincipalRead, "principal"), principals::get;
        rename_principal(RenamePrincipalRequest) -> Empty = "RenamePrincipal",
            Change(Action::PrincipalRename, "principal"), principals::rename;
        list_principals(Empty) -> PrincipalList = "ListPrincipals",
            Lookup(Action::PrincipalList, "principal"), principals::list;
        list_workspace_service_principals(ListWorkspaceServicePrincipalsRequest) -> ServicePrincipalList
            = "ListWorkspaceServicePrincipals", Lookup(Action::PrincipalList, "principal"), principals::list_services;
        remove_principal_from_workspace(RemovePrincipalFromWorkspaceRequest) -> Empty = "RemovePrincipalFromWorkspace",
            Change(Action::WorkspaceRevokeAccess, "principal"), principals::remove_from_workspace;
        revoke_all_principal_permissions(RevokeAllPrincipalPermissionsRequest) -> RevokeAllPrincipalPermissionsResponse
            = "RevokeAllPrincipalPermissions", Change(Action::PrincipalRevokeAllPermissions, "principal"),
            principals::revoke_all;

        create_project(CreateProjectRequest) -> Project = "CreateProject",
            Change(Action::ProjectCreate, "project"), projects::create;
        list_projects(ListProjectsRequest) -> ProjectList = "ListProjects",
            Lookup(Action::ProjectList, "workspace"), projects::list;
        get_project(GetProjectRequest) -> Project = "GetProject",
            Lookup(Action::ProjectRead, "project"), projects::get;
        delete_project(DeleteProjectRequest) -> Empty = "DeleteProject",
            Change(Action::ProjectDelete, "project"), projects::delete;

        create_environment(CreateEnvironmentRequest) -> Environment = "CreateEnvironment",
            Change(Action::EnvironmentCreate, "environment"), environments::create;
        list_environments(ListEnvironmentsRequest) -> EnvironmentList = "ListEnvironments",
            Read(Action::EnvironmentList, "project"), environments::list;
        get_environment(GetEnvironmentRequest) -> Environment = "GetEnvironment",
            Read(Action::EnvironmentRead, "environment"), environments::get;
        delete_environment(DeleteEnvironmentRequest) -> Empty = "DeleteEnvironment",
            Change(Action::EnvironmentDelete, "environment"), environments::delete;

        upsert_secret(UpsertSecretRequest) -> Empty = "UpsertSecret",
            Change(Action::SecretUpdate, "secret"), secrets::upsert, in environment;
        get_secret(GetSecretRequest) -> Secret = "GetSecret", Read(Action::SecretRead, "secret"), secrets::get, in environment;
        list_secrets(ListSecretsRequest) -> SecretList = "ListSecrets",
            Read(Action::SecretList, "environment"), secrets::list, in environment;
        delete_secret(DeleteSecretRequest) -> Empty = "DeleteSecret",
            Change(Action::SecretDelete, "secret"), secrets::delete, in environment;

        set_workspace_permission(SetWorkspacePermissionRequest) -> Empty = "SetWorkspacePermission",
            Change(Action::PermissionSetWorkspace, "principal"), permissions::principal_workspace::set;
        get_workspace_permission(GetWorkspacePermissionRequest) -> PermissionResponse = "GetWorkspacePermission",
            Lookup(Action::PermissionRead, "principal"), permissions::principal_workspace::get;
        list_workspace_permissions(ListWorkspacePermissionsRequest) -> PermissionList = "ListWorkspacePermissions",
            Lookup(Action::PermissionList, "principal"), permissions::principal_workspace::list;
        remove_workspace_permission(RemoveWorkspacePermissionRequest) -> Empty = "RemoveWorkspacePermission",
            Change(Action::PermissionRemoveWorkspace, "principal"), permissions::principal_workspace::remove;

        set_project_permission(SetProjectPermissionRequest) -> Empty = "SetProjectPermission",
            Change(Action::PermissionSetProject, "principal"), permissions::principal_project::set;
        get_project_permission(GetProjectPermissionRequest) -> PermissionResponse = "GetProjectPermission",
            Lookup(Action::PermissionRead, "principal"), permissions::principal_project::get;
        list_project_permissions(ListProjectPermissionsRequest) -> PermissionList = "ListProjectPermissions",
            Lookup(Action::PermissionList, "principal"), permissions::principal_project::list;
        remove_project_permission(RemoveProjectPermissionRequest) -> Empty = "RemoveProjectPermission",
            Change(Action::PermissionRemoveProject, "principal"), permissions::principal_project::remove;

        set_environment_permission(SetEnvironmentPermissionRequest) -> Empty = "SetEnvironmentPermission",
            Change(Action::PermissionSetEnvironment, "principal"), permissions::principal_environment::set;
        get_environment_permission(GetEnvironmentPermissionRequest) -> PermissionResponse = "GetEnvironmentPermission",
            Lookup(Action::PermissionRead, "principal"), permissions::principal_environment::get;
        list_environment_permissions(ListEnvironmentPermissionsRequest) -> PermissionList = "ListEnvironmentPermissions",
            Lookup(Action::PermissionList, "principal"), permissions::principal_environment::list;
        remove_environment_permission(RemoveEnvironmentPermissionRequest) -> Empty = "RemoveEnvironmentPermission",
            Change(Action::PermissionRemoveEnvironment, "principal"), permissions::principal_environment::remove;

        set_user_workspace_permission(SetUserWorkspacePermissionRequest) -> Empty = "SetUserWorkspacePermission",
            Change(Action::UserPermissionSetWorkspace, "user"), permissions::user_workspace::set;
        get_user_workspace_permission(GetUserWorkspacePermissionRequest) -> PermissionResponse = "GetUserWorkspacePermission",
            Lookup(Action::PermissionRead, "user"), permissions::user_workspace::get;
        list_user_workspace_permissions(ListUserWorkspacePermissionsRequest) -> UserPermissionList = "ListUserWorkspacePermissions",
            Lookup(Action::PermissionList, "user"), permissions::user_workspace::list;
        remove_user_workspace_permission(RemoveUserWorkspacePermissionRequest) -> Empty = "RemoveUserWorkspacePermission",
            Change(Action::UserPermissionRemoveWorkspace, "user"), permissions::user_workspace::remove;

        set_user_project_permission(SetUserProjectPermissionRequest) -> Empty = "SetUserProjectPermission",
            Change(Action::UserPermissionSetProject, "user"), permissions::user_project::set;
        get_user_project_permission(GetUserProjectPermissionRequest) -> PermissionResponse = "GetUserProjectPermission",
            Lookup(Action::PermissionRead, "user"), permissions::user_project::get;
        list_user_project_permissions(ListUserProjectPermissionsRequest) -> UserPermissionList = "ListUserProjectPermissions",
            Lookup(Action::PermissionList, "user"), permissions::user_project::list;
        remove_user_project_permission(RemoveUserProjectPermissionRequest) -> Empty = "RemoveUserProjectPermission",
            Change(Action::UserPermissionRemoveProject, "user"), permissions::user_project::remove;

        set_user_environment_permission(SetUserEnvironmentPermissionRequest) -> Empty = "SetUserEnvironmentPermission",
            Change(Action::UserPermissionSetEnvironment, "user"), permissions::user_environment::set;
        get_user_environment_permission(GetUserEnvironmentPermissionRequest) -> PermissionResponse = "GetUserEnvironmentPermission",
            Lookup(Action::PermissionRead, "user"), permissions::user_environment::get;
        list_user_environment_permissions(ListUserEnvironmentPermissionsRequest) -> UserPermissionList = "ListUserEnvironmentPermissions",
            Lookup(Action::PermissionList, "user"), permissions::user_environment::list;
        remove_user_environment_permission(RemoveUserEnvironmentPermissionRequest) -> Empty = "RemoveUserEnvironmentPermission",
            Change(Action::UserPermissionRemoveEnvironment, "user"), permissions::user_environment::remove;

        set_group_workspace_permission(SetGroupWorkspacePermissionRequest) -> Empty = "SetGroupWorkspacePermission",
            Change(Action::GroupPermissionSetWorkspace, "group"), permissions::group_workspace::set;
        get_group_workspace_permission(GetGroupWorkspacePermissionRequest) -> PermissionResponse = "GetGroupWorkspacePermission",
            Lookup(Action::PermissionRead, "group"), permissions::group_workspace::get;
        list_group_workspace_permissions(ListGroupWorkspacePermissionsRequest) -> GroupPermissionList = "ListGroupWorkspacePermissions",
            Lookup(Action::PermissionList, "group"), permissions::group_workspace::list;
        remove_group_workspace_permission(RemoveGroupWorkspacePermissionRequest) -> Empty = "RemoveGroupWorkspacePermission",
            Change(Action::GroupPermissionRemoveWorkspace, "group"), permissions::group_workspace::remove;

        set_group_project_permission(SetGroupProjectPermissionRequest) -> Empty = "SetGroupProjectPermission",
            Change(Action::GroupPermissionSetProject, "group"), permissions::group_project::set;
        get_group_project_permission(GetGroupProjectPermissionRequest) -> PermissionResponse = "GetGroupProjectPermission",
            Lookup(Action::PermissionRead, "group"), permissions::group_project::get;
        list_group_project_permissions(ListGroupProjectPermissionsRequest) -> GroupPermissionList = "ListGroupProjectPermissions",
            Lookup(Action::PermissionList, "group"), permissions::group_project::list;
        remove_group_project_permission(RemoveGroupProjectPermissionRequest) -> Empty = "RemoveGroupProjectPermission",
            Change(Action::GroupPermissionRemoveProject, "group"), permissions::group_project::remove;

        set_group_environment_permission(SetGroupEnvironmentPermissionRequest) -> Empty = "SetGroupEnvironmentPermission",
            Change(Action::GroupPermissionSetEnvironment, "group"), permissions::group_environment::set;
        get_group_environment_permission(GetGroupEnvironmentPermissionRequest) -> PermissionResponse = "GetGroupEnvironmentPermission",
            Lookup(Action::PermissionRead, "group"), permissions::group_environment::get;
        list_group_environment_permissions(ListGroupEnvironmentPermissionsRequest) -> GroupPermissionList = "ListGroupEnvironmentPermissions",
            Lookup(Action::PermissionList, "group"), permissions::group_environment::list;
        remove_group_environment_permission(RemoveGroupEnvironmentPermissionRequest) -> Empty = "RemoveGroupEnvironmentPermission",
            Change(Action::GroupPermissionRemoveEnvironment, "group"), permissions::group_environment::remove;

        get_effective_permissions(GetEffectivePermissionsRequest) -> EffectivePermissionsResponse
            = "GetEffectivePermissions", Lookup(Action::PermissionRead, "principal"), effective::get;

        create_group(CreateGroupRequest) -> Group = "CreateGroup",
            Change(Action::GroupCreate, "group"), groups::create;
        get_group(GetGroupRequest) -> Group = "GetGroup",
            Lookup(Action::GroupRead, "group"), groups::get;
        list_groups(ListGroupsRequest) -> GroupList = "ListGroups",
            Lookup(Action::GroupList, "workspace"), groups::list;
        update_group(UpdateGroupRequest) -> Group = "UpdateGroup",
            Change(Action::GroupUpdate, "group"), groups::update;
        delete_group(DeleteGroupRequest) -> Empty = "DeleteGroup",
            Change(Action::GroupDelete, "group"), groups::delete;
        add_group_member(AddGroupMemberRequest) -> Empty = "AddGroupMember",
            Change(Action::GroupMemberAdd, "group"), groups::add_member;
        remove_group_member(RemoveGroupMemberRequest) -> Empty = "RemoveGroupMember",
            Change(Action::GroupMemberRemove, "group"), groups::remove_member;
        list_group_members(ListGroupMembersRequest) -> GroupMemberList = "ListGroupMembers",
            Lookup(Action::GroupRead, "group"), groups::list_members;
        list_user_groups(ListUserGroupsRequest) -> GroupList = "ListUserGroups",
            Lookup(Action::GroupList, "user"), groups::list_of_user;

        list_audit_logs(ListAuditLogsRequest) -> AuditLogList = "ListAuditLogs",
            Lookup(Action::AuditList, "workspace"), audit::list;
        get_audit_log(GetAuditLogRequest) -> AuditLogEntry = "GetAuditLog",
            Lookup(Action::AuditRead, "audit_entry"), audit::get;
        count_audit_logs(CountAuditLogsRequest) -> CountAuditLogsResponse = "CountAuditLogs",
            Lookup(Action::AuditList, "workspace"), audit::count;

        create_principal_export(CreatePrincipalExportRequest) -> CreatePrincipalExportResponse = "CreatePrincipalExport",
            Change(Action::PrincipalExportCreate, "principal_export"), exports::create;
    }

    others {
        async fn join(
            &self,
            request: Request<proto::JoinRequest>,
        ) -> Result<Response<proto::JoinResponse>, Status> {
            accounts::join(&self.state, request).await
        }

        async fn register(
            &self,
            request: Request<proto::RegisterRequest>,
        ) -> Result<Response<proto::RegisterResponse>, Status> {
            accounts::register(&self.state, request).await
        }

        async fn login(
            &self,
            request: Request<proto::LoginRequest>,
        ) -> Result<Response<proto::LoginResponse>, Status> {
            accounts::login(&self.state, request).await
        }

        async fn get_invite(
            &self,
            request: Request<proto::GetInviteRequest>,
        ) -> Result<Response<proto::InviteToken>, Status> {
            invites::get(&self.state, request).await.map(Response::new)
        }

        async fn get_principal_export(
            &self,
            request: Request<proto::GetPrincipalExportRequest>,
        ) -> Result<Response<proto::GetPrincipalExportResponse>, Status> {
            exports::get(&self.state, &request).await.map(Response::new)
        }

        async fn consume_principal_export(
            &self,
            request: Request<proto::ConsumePrincipalExportRequest>,
        ) -> Result<Response<proto::Empty>, Status> {
            exports::consume(&self.state, &request).await.map(Response::new)
        }

        async fn watch_secrets(
            &self,
            request: Request<proto::WatchSecretsRequest>,
        ) -> Result<Response<BoxStream<proto::WatchSecretsResponse>>, Status> {
            let mut call = Call::open(
                &self.state,
                &request,
                "WatchSecrets",
                Read(Action::SecretWatch, "environment"),
                // The place is looked up once losses are listened to.
                None,
            )
            .await?;
            let message = request.into_inner();
            let opened = watch::open(&mut call, &message).await;
            let stream_call = call.answered();
            let opened = call.close(opened).await?;
            Ok(Response::new(Box::pin(watch::run(stream_call, message, opened.into_inner()))))
        }
    }
}

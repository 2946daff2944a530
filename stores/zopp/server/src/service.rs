//! The table of calls: which handler serves it, and what is put on record.

use std::sync::Arc;

use konverge_zopp_proto::{self as proto, zopp_service_server::ZoppService};
use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{
    call::{Call, Record},
    handlers::{accounts, environments, invites, permissions, principals, projects, secrets, watch, workspaces},
    state::State,
    store::Action,
};

/// The gRPC service. What is not in the table answers UNIMPLEMENTED.
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
        signed { $($method:ident($request:ident) -> $answer:ident = $name:literal, $record:expr, $handler:path;)* }
        others { $($others:tt)* }
    ) => {
        #[tonic::async_trait]
        impl ZoppService for Service {
            $(
                async fn $method(
                    &self,
                    request: Request<proto::$request>,
                ) -> Result<Response<proto::$answer>, Status> {
                    let mut call = Call::open(&self.state, &request, $name, $record).await?;
                    let result = $handler(&mut call, request.into_inner()).await;
                    call.close(result).await
                }
            )*
            $($others)*
        }
    };
}

use Record::{Change, Nothing, Read};

service! {
    signed {
        create_workspace(CreateWorkspaceRequest) -> Workspace = "CreateWorkspace",
            Change(Action::WorkspaceCreate, "workspace"), workspaces::create;
        list_workspaces(Empty) -> WorkspaceList = "ListWorkspaces", Nothing, workspaces::list;
        get_workspace_keys(GetWorkspaceKeysRequest) -> WorkspaceKeys = "GetWorkspaceKeys", Nothing, workspaces::keys;
        grant_principal_workspace_access(GrantPrincipalWorkspaceAccessRequest) -> Empty = "GrantPrincipalWorkspaceAccess",
            Change(Action::WorkspaceGrantAccess, "principal"), workspaces::grant_access;

        create_invite(CreateInviteRequest) -> InviteToken = "CreateInvite",
            Change(Action::InviteCreate, "invite"), invites::create;
        list_invites(Empty) -> InviteList = "ListInvites", Nothing, invites::list;
        revoke_invite(RevokeInviteRequest) -> Empty = "RevokeInvite",
            Change(Action::InviteRevoke, "invite"), invites::revoke;

        get_principal(GetPrincipalRequest) -> Principal = "GetPrincipal", Nothing, principals::get;
        rename_principal(RenamePrincipalRequest) -> Empty = "RenamePrincipal",
            Change(Action::PrincipalRename, "principal"), principals::rename;
        list_principals(Empty) -> PrincipalList = "ListPrincipals", Nothing, principals::list;
        list_workspace_service_principals(ListWorkspaceServicePrincipalsRequest) -> ServicePrincipalList
            = "ListWorkspaceServicePrincipals", Nothing, principals::list_services;
        remove_principal_from_workspace(RemovePrincipalFromWorkspaceRequest) -> Empty = "RemovePrincipalFromWorkspace",
            Change(Action::WorkspaceRevokeAccess, "principal"), principals::remove_from_workspace;
        revoke_all_principal_permissions(RevokeAllPrincipalPermissionsRequest) -> RevokeAllPrincipalPermissionsResponse
            = "RevokeAllPrincipalPermissions", Change(Action::PrincipalRevokeAllPermissions, "principal"),
            principals::revoke_all;

        create_project(CreateProjectRequest) -> Project = "CreateProject",
            Change(Action::ProjectCreate, "project"), projects::create;
        list_projects(ListProjectsRequest) -> ProjectList = "ListProjects", Nothing, projects::list;
        get_project(GetProjectRequest) -> Project = "GetProject", Nothing, projects::get;
        delete_project(DeleteProjectRequest) -> Empty = "DeleteProject",
            Change(Action::ProjectDelete, "project"), projects::delete;

        create_environment(CreateEnvironmentRequest) -> Environment = "CreateEnvironment",
            Change(Action::EnvironmentCreate, "environment"), environments::create;
        list_environments(ListEnvironmentsRequest) -> EnvironmentList = "ListEnvironments", Nothing, environments::list;
        get_environment(GetEnvironmentRequest) -> Environment = "GetEnvironment", Nothing, environments::get;
        delete_environment(DeleteEnvironmentRequest) -> Empty = "DeleteEnvironment",
            Change(Action::EnvironmentDelete, "environment"), environments::delete;

        upsert_secret(UpsertSecretRequest) -> Empty = "UpsertSecret",
            Change(Action::SecretUpdate, "secret"), secrets::upsert;
        get_secret(GetSecretRequest) -> Secret = "GetSecret", Read(Action::SecretRead, "secret"), secrets::get;
        list_secrets(ListSecretsRequest) -> SecretList = "ListSecrets",
            Read(Action::SecretList, "environment"), secrets::list;
        delete_secret(DeleteSecretRequest) -> Empty = "DeleteSecret",
            Change(Action::SecretDelete, "secret"), secrets::delete;

        set_workspace_permission(SetWorkspacePermissionRequest) -> Empty = "SetWorkspacePermission",
            Change(Action::PermissionSetWorkspace, "principal"), permissions::workspace::set;
        get_workspace_permission(GetWorkspacePermissionRequest) -> PermissionResponse = "GetWorkspacePermission",
            Nothing, permissions::workspace::get;
        list_workspace_permissions(ListWorkspacePermissionsRequest) -> PermissionList = "ListWorkspacePermissions",
            Nothing, permissions::workspace::list;
        remove_workspace_permission(RemoveWorkspacePermissionRequest) -> Empty = "RemoveWorkspacePermission",
            Change(Action::PermissionRemoveWorkspace, "principal"), permissions::workspace::remove;

        set_project_permission(SetProjectPermissionRequest) -> Empty = "SetProjectPermission",
            Change(Action::PermissionSetProject, "principal"), permissions::project::set;
        get_project_permission(GetProjectPermissionRequest) -> PermissionResponse = "GetProjectPermission",
            Nothing, permissions::project::get;
        list_project_permissions(ListProjectPermissionsRequest) -> PermissionList = "ListProjectPermissions",
            Nothing, permissions::project::list;
        remove_project_permission(RemoveProjectPermissionRequest) -> Empty = "RemoveProjectPermission",
            Change(Action::PermissionRemoveProject, "principal"), permissions::project::remove;

        set_environment_permission(SetEnvironmentPermissionRequest) -> Empty = "SetEnvironmentPermission",
            Change(Action::PermissionSetEnvironment, "principal"), permissions::environment::set;
        get_environment_permission(GetEnvironmentPermissionRequest) -> PermissionResponse = "GetEnvironmentPermission",
            Nothing, permissions::environment::get;
        list_environment_permissions(ListEnvironmentPermissionsRequest) -> PermissionList = "ListEnvironmentPermissions",
            Nothing, permissions::environment::list;
        remove_environment_permission(RemoveEnvironmentPermissionRequest) -> Empty = "RemoveEnvironmentPermission",
            Change(Action::PermissionRemoveEnvironment, "principal"), permissions::environment::remove;
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
            invites::get(&self.state, request.into_inner()).await.map(Response::new)
        }

        /// Exports are not kept yet, so none is ever found. The answer matters: clients tell the generations apart by it.
        async fn get_principal_export(
            &self,
            _: Request<proto::GetPrincipalExportRequest>,
        ) -> Result<Response<proto::GetPrincipalExportResponse>, Status> {
            Err(Status::not_found("export not found or expired"))
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
            )
            .await?;
            let message = request.into_inner();
            let opened = watch::open(&mut call, &message).await;
            let stream_call = call.clone();
            let opened = call.close(opened).await?;
            Ok(Response::new(Box::pin(watch::run(stream_call, message, opened.into_inner()))))
        }
    }
}

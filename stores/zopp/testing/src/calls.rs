//! All calls of the server, with the types of their messages, for tests that send and receive anything.

use konverge_zopp_proto::{self as proto, identity, secrets};
use prost::Message;

/// A call, and what its messages are.
#[derive(Debug, Clone)]
pub struct CallTypes {
    /// For example `/zopp.ZoppService/ListSecrets`.
    pub path: String,
    /// Decodes bytes as its request.
    pub request: Canonical,
    /// Decodes bytes as its answer.
    pub answer: Canonical,
}

/// Decodes bytes as a message, and encodes that: the bytes that a signature covers. `None` if they are no such message.
pub type Canonical = fn(&[u8]) -> Option<Vec<u8>>;

fn canonical<M: Message + Default>(bytes: &[u8]) -> Option<Vec<u8>> {
    M::decode(bytes).ok().map(|message| message.encode_to_vec())
}

macro_rules! calls {
    ($package:ident: $($call:ident($request:ident) -> $answer:ident),* $(,)?) => {
        [$(CallTypes {
            path: $package::method_path(stringify!($call)),
            request: canonical::<$package::$request>,
            answer: canonical::<$package::$answer>,
        }),*]
    };
}

/// All calls: those of the contract, and our own.
#[expect(clippy::too_many_lines, reason = "one line per call")]
pub fn calls() -> Vec<CallTypes> {
    let contract = calls! { proto:
        Join(JoinRequest) -> JoinResponse,
        Register(RegisterRequest) -> RegisterResponse,
        Login(LoginRequest) -> LoginResponse,
        CreateWorkspace(CreateWorkspaceRequest) -> Workspace,
        ListWorkspaces(Empty) -> WorkspaceList,
        GetWorkspaceKeys(GetWorkspaceKeysRequest) -> WorkspaceKeys,
        GrantPrincipalWorkspaceAccess(GrantPrincipalWorkspaceAccessRequest) -> Empty,
        CreateInvite(CreateInviteRequest) -> InviteToken,
        GetInvite(GetInviteRequest) -> InviteToken,
        ListInvites(Empty) -> InviteList,
        RevokeInvite(RevokeInviteRequest) -> Empty,
        GetPrincipal(GetPrincipalRequest) -> Principal,
        RenamePrincipal(RenamePrincipalRequest) -> Empty,
        ListPrincipals(Empty) -> PrincipalList,
        ListWorkspaceServicePrincipals(ListWorkspaceServicePrincipalsRequest) -> ServicePrincipalList,
        RemovePrincipalFromWorkspace(RemovePrincipalFromWorkspaceRequest) -> Empty,
        RevokeAllPrincipalPermissions(RevokeAllPrincipalPermissionsRequest) -> RevokeAllPrincipalPermissionsResponse,
        CreatePrincipalExport(CreatePrincipalExportRequest) -> CreatePrincipalExportResponse,
        GetPrincipalExport(GetPrincipalExportRequest) -> GetPrincipalExportResponse,
        ConsumePrincipalExport(ConsumePrincipalExportRequest) -> Empty,
        CreateProject(CreateProjectRequest) -> Project,
        ListProjects(ListProjectsRequest) -> ProjectList,
        GetProject(GetProjectRequest) -> Project,
        DeleteProject(DeleteProjectRequest) -> Empty,
        CreateEnvironment(CreateEnvironmentRequest) -> Environment,
        ListEnvironments(ListEnvironmentsRequest) -> EnvironmentList,
        GetEnvironment(GetEnvironmentRequest) -> Environment,
        DeleteEnvironment(DeleteEnvironmentRequest) -> Empty,
        UpsertSecret(UpsertSecretRequest) -> Empty,
        GetSecret(GetSecretRequest) -> Secret,
        ListSecrets(ListSecretsRequest) -> SecretList,
        DeleteSecret(DeleteSecretRequest) -> Empty,
        WatchSecrets(WatchSecretsRequest) -> WatchSecretsResponse,
        SetWorkspacePermission(SetWorkspacePermissionRequest) -> Empty,
        GetWorkspacePermission(GetWorkspacePermissionRequest) -> PermissionResponse,
        ListWorkspacePermissions(ListWorkspacePermissionsRequest) -> PermissionList,
        RemoveWorkspacePermission(RemoveWorkspacePermissionRequest) -> Empty,
        SetProjectPermission(SetProjectPermissionRequest) -> Empty,
        GetProjectPermission(GetProjectPermissionRequest) -> PermissionResponse,
        ListProjectPermissions(ListProjectPermissionsRequest) -> PermissionList,
        RemoveProjectPermission(RemoveProjectPermissionRequest) -> Empty,
        SetEnvironmentPermission(SetEnvironmentPermissionRequest) -> Empty,
        GetEnvironmentPermission(GetEnvironmentPermissionRequest) -> PermissionResponse,
        ListEnvironmentPermissions(ListEnvironmentPermissionsRequest) -> PermissionList,
        RemoveEnvironmentPermission(RemoveEnvironmentPermissionRequest) -> Empty,
        CreateGroup(CreateGroupRequest) -> Group,
        GetGroup(GetGroupRequest) -> Group,
        ListGroups(ListGroupsRequest) -> GroupList,
        UpdateGroup(UpdateGroupRequest) -> Group,
        DeleteGroup(DeleteGroupRequest) -> Empty,
        AddGroupMember(AddGroupMemberRequest) -> Empty,
        RemoveGroupMember(RemoveGroupMemberRequest) -> Empty,
        ListGroupMembers(ListGroupMembersRequest) -> GroupMemberList,
        ListUserGroups(ListUserGroupsRequest) -> GroupList,
        SetGroupWorkspacePermission(SetGroupWorkspacePermissionRequest) -> Empty,
        GetGroupWorkspacePermission(GetGroupWorkspacePermissionRequest) -> PermissionResponse,
        ListGroupWorkspacePermissions(ListGroupWorkspacePermissionsRequest) -> GroupPermissionList,
        RemoveGroupWorkspacePermission(RemoveGroupWorkspacePermissionRequest) -> Empty,
        SetGroupProjectPermission(SetGroupProjectPermissionRequest) -> Empty,
        GetGroupProjectPermission(GetGroupProjectPermissionRequest) -> PermissionResponse,
        ListGroupProjectPermissions(ListGroupProjectPermissionsRequest) -> GroupPermissionList,
        RemoveGroupProjectPermission(RemoveGroupProjectPermissionRequest) -> Empty,
        SetGroupEnvironmentPermission(SetGroupEnvironmentPermissionRequest) -> Empty,
        GetGroupEnvironmentPermission(GetGroupEnvironmentPermissionRequest) -> PermissionResponse,
        ListGroupEnvironmentPermissions(ListGroupEnvironmentPermissionsRequest) -> GroupPermissionList,
        RemoveGroupEnvironmentPermission(RemoveGroupEnvironmentPermissionRequest) -> Empty,
        SetUserWorkspacePermission(SetUserWorkspacePermissionRequest) -> Empty,
        GetUserWorkspacePermission(GetUserWorkspacePermissionRequest) -> PermissionResponse,
        ListUserWorkspacePermissions(ListUserWorkspacePermissionsRequest) -> UserPermissionList,
        RemoveUserWorkspacePermission(RemoveUserWorkspacePermissionRequest) -> Empty,
        SetUserProjectPermission(SetUserProjectPermissionRequest) -> Empty,
        GetUserProjectPermission(GetUserProjectPermissionRequest) -> PermissionResponse,
        ListUserProjectPermissions(ListUserProjectPermissionsRequest) -> UserPermissionList,
        RemoveUserProjectPermission(RemoveUserProjectPermissionRequest) -> Empty,
        SetUserEnvironmentPermission(SetUserEnvironmentPermissionRequest) -> Empty,
        GetUserEnvironmentPermission(GetUserEnvironmentPermissionRequest) -> PermissionResponse,
        ListUserEnvironmentPermissions(ListUserEnvironmentPermissionsRequest) -> UserPermissionList,
        RemoveUserEnvironmentPermission(RemoveUserEnvironmentPermissionRequest) -> Empty,
        GetEffectivePermissions(GetEffectivePermissionsRequest) -> EffectivePermissionsResponse,
        ListAuditLogs(ListAuditLogsRequest) -> AuditLogList,
        GetAuditLog(GetAuditLogRequest) -> AuditLogEntry,
        CountAuditLogs(CountAuditLogsRequest) -> CountAuditLogsResponse,
    };
    let identities = calls! { identity:
        DisablePrincipal(DisablePrincipalRequest) -> DisablePrincipalResponse,
        EnablePrincipal(EnablePrincipalRequest) -> EnablePrincipalResponse,
        RemoveMember(RemoveMemberRequest) -> RemoveMemberResponse,
        TransferOwnership(TransferOwnershipRequest) -> TransferOwnershipResponse,
        DeleteWorkspace(DeleteWorkspaceRequest) -> DeleteWorkspaceResponse,
        RemoveUser(RemoveUserRequest) -> RemoveUserResponse,
        CreateInvite(CreateInviteRequest) -> Invite,
        ListInvites(ListInvitesRequest) -> ListInvitesResponse,
        GetKeySignature(GetKeySignatureRequest) -> GetKeySignatureResponse,
        GetKeyState(GetKeyStateRequest) -> GetKeyStateResponse,
        RotateWorkspaceKey(RotateWorkspaceKeyRequest) -> RotateWorkspaceKeyResponse,
        GetKeyChain(GetKeyChainRequest) -> GetKeyChainResponse,
    };
    let environments = calls! { secrets:
        ReadEnvironment(ReadEnvironmentRequest) -> ReadEnvironmentResponse,
        ReadSecret(ReadSecretRequest) -> ReadEnvironmentResponse,
        ChangeSecrets(ChangeSecretsRequest) -> ChangeSecretsResponse,
        ReadSecretHistory(ReadSecretHistoryRequest) -> ReadSecretHistoryResponse,
        ForgetSecretHistory(ForgetSecretHistoryRequest) -> ForgetSecretHistoryResponse,
    };
    contract.into_iter().chain(identities).chain(environments).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_left_out() {
        let schemas = [
            include_str!("../../proto/proto/zopp.proto"),
            include_str!("../../proto/proto/konverge/zopp/v1/identity.proto"),
            include_str!("../../proto/proto/konverge/zopp/secrets/v1/secrets.proto"),
        ];
        let lines = schemas.iter().flat_map(|schema| schema.lines()).map(str::trim_start);
        let names: Vec<&str> = lines.filter_map(|line| line.strip_prefix("rpc ")?.split('(').next()).collect();
        let listed: Vec<String> = calls().into_iter().map(|call| call.path).collect();
        let listed: Vec<&str> = listed.iter().filter_map(|path| path.rsplit('/').next()).collect();
        assert_eq!(listed, names);
    }
}

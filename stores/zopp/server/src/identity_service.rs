//! The table of the calls of Konverge's own, beside those of the contract.

use crate::{
    call::Record::{Change, Lookup, Read},
    handlers::{invites, key_rotation, lifecycle, workspaces},
    own_service::own_service,
    store::Action,
};

own_service! {
    /// The gRPC service `konverge.zopp.v1.Identity`.
    IdentityService: identity, identity_server::Identity {
        disable_principal(DisablePrincipalRequest) -> DisablePrincipalResponse = "DisablePrincipal",
            Change(Action::PrincipalDisable, "principal"), lifecycle::disable;
        enable_principal(EnablePrincipalRequest) -> EnablePrincipalResponse = "EnablePrincipal",
            Change(Action::PrincipalEnable, "principal"), lifecycle::enable;
        remove_member(RemoveMemberRequest) -> RemoveMemberResponse = "RemoveMember",
            Change(Action::WorkspaceRemoveMember, "user"), lifecycle::remove_member;
        transfer_ownership(TransferOwnershipRequest) -> TransferOwnershipResponse = "TransferOwnership",
            Change(Action::WorkspaceTransfer, "user"), lifecycle::transfer_ownership;
        delete_workspace(DeleteWorkspaceRequest) -> DeleteWorkspaceResponse = "DeleteWorkspace",
            Change(Action::WorkspaceDelete, "workspace"), lifecycle::delete_workspace;
        remove_user(RemoveUserRequest) -> RemoveUserResponse = "RemoveUser",
            Change(Action::UserRemove, "user"), lifecycle::remove_user;
        create_invite(CreateInviteRequest) -> Invite = "CreateInvite",
            Change(Action::InviteCreate, "invite"), invites::create_limited;
        list_invites(ListInvitesRequest) -> ListInvitesResponse = "ListInvites",
            Lookup(Action::InviteList, "invite"), invites::list_counted;
        get_key_signature(GetKeySignatureRequest) -> GetKeySignatureResponse = "GetKeySignature",
            Lookup(Action::WorkspaceReadKey, "workspace"), workspaces::key_signature;
        get_key_state(GetKeyStateRequest) -> GetKeyStateResponse = "GetKeyState",
            Read(Action::WorkspaceReadKey, "workspace"), key_rotation::state;
        rotate_workspace_key(RotateWorkspaceKeyRequest) -> RotateWorkspaceKeyResponse = "RotateWorkspaceKey",
            Change(Action::WorkspaceRotateKey, "workspace"), key_rotation::rotate;
        get_key_chain(GetKeyChainRequest) -> GetKeyChainResponse = "GetKeyChain",
            Lookup(Action::WorkspaceReadKey, "workspace"), key_rotation::chain;
    }
}

//! The calls of Konverge's own: losing an identity, and invites that can be used up. A stock server answers `UNIMPLEMENTED`.

use konverge_zopp_proto::identity as proto;

use crate::{client::Client, connection::Rpc, error::CallError};

macro_rules! own_calls {
    ($($method:ident($request:ident) -> $answer:ident = $name:literal;)*) => {
        impl Client {
            $(
                #[doc = concat!("Calls `konverge.zopp.v1.Identity/", $name, "`, signed.")]
                pub async fn $method(&self, request: proto::$request) -> Result<proto::$answer, CallError> {
                    let rpc = Rpc { name: $name, path: concat!("/konverge.zopp.v1.Identity/", $name) };
                    self.call(rpc, &request).await
                }
            )*
        }
    };
}

own_calls! {
    disable_principal(DisablePrincipalRequest) -> DisablePrincipalResponse = "DisablePrincipal";
    enable_principal(EnablePrincipalRequest) -> EnablePrincipalResponse = "EnablePrincipal";
    remove_member(RemoveMemberRequest) -> RemoveMemberResponse = "RemoveMember";
    transfer_ownership(TransferOwnershipRequest) -> TransferOwnershipResponse = "TransferOwnership";
    delete_workspace(DeleteWorkspaceRequest) -> DeleteWorkspaceResponse = "DeleteWorkspace";
    remove_user(RemoveUserRequest) -> RemoveUserResponse = "RemoveUser";
    list_counted_invites(ListInvitesRequest) -> ListInvitesResponse = "ListInvites";
    get_key_signature(GetKeySignatureRequest) -> GetKeySignatureResponse = "GetKeySignature";
    get_key_state(GetKeyStateRequest) -> GetKeyStateResponse = "GetKeyState";
    rotate_workspace_key(RotateWorkspaceKeyRequest) -> RotateWorkspaceKeyResponse = "RotateWorkspaceKey";
    get_key_chain(GetKeyChainRequest) -> GetKeyChainResponse = "GetKeyChain";
}

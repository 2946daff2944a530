//! The table of the calls of Konverge's own, beside those of the contract.

use std::sync::Arc;

use konverge_zopp_proto::identity::{self as proto, identity_server::Identity, method_path};
use tonic::{Request, Response, Status};

use crate::{
    call::{
        Call,
        Record::{self, Change, Lookup},
    },
    handlers::{invites, lifecycle, workspaces},
    state::State,
    store::Action,
};

/// The gRPC service `konverge.zopp.v1.Identity`.
#[derive(Debug, Clone)]
pub(crate) struct IdentityService {
    state: Arc<State>,
}

impl IdentityService {
    /// A service on this state.
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

macro_rules! service {
    ($($method:ident($request:ident) -> $answer:ident = $name:literal, $record:expr, $handler:path;)*) => {
        #[tonic::async_trait]
        impl Identity for IdentityService {
            $(
                async fn $method(
                    &self,
                    request: Request<proto::$request>,
                ) -> Result<Response<proto::$answer>, Status> {
                    let record: Record = $record;
                    let mut call = Call::open_at(&self.state, &request, &method_path($name), record).await?;
                    let result = $handler(&mut call, request.into_inner()).await;
                    call.close(result).await
                }
            )*
        }
    };
}

service! {
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
}

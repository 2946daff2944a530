//! The calls that hand over a key. Each carries further signatures, which stock servers ignore: that its sender holds the private half of the
//! key that it registers, and that it made the wrap of the workspace key.

use bytes::Bytes;
use konverge_zopp_crypto::{SigningSeed, WrapToSign, X25519Public, signature};
use konverge_zopp_proto::{
    CreateWorkspaceRequest, Empty, GrantPrincipalWorkspaceAccessRequest, JoinRequest, JoinResponse, RegisterRequest,
    RegisterResponse, Workspace,
};
use prost::Message;

use crate::{
    client::Client,
    connection::{Connection, Proofs, Rpc},
    error::CallError,
};

const JOIN: Rpc = Rpc { name: "Join", path: "/zopp.ZoppService/Join" };
const REGISTER: Rpc = Rpc { name: "Register", path: "/zopp.ZoppService/Register" };
const CREATE_WORKSPACE: Rpc = Rpc { name: "CreateWorkspace", path: "/zopp.ZoppService/CreateWorkspace" };
const GRANT_ACCESS: Rpc =
    Rpc { name: "GrantPrincipalWorkspaceAccess", path: "/zopp.ZoppService/GrantPrincipalWorkspaceAccess" };

impl Connection {
    /// Calls `Join`, unsigned, for the key of which `seed` is the private half. `workspace_id` is that of the key in the request, if it
    /// has one.
    ///
    /// # Errors
    /// As any call.
    pub async fn join(
        &self,
        request: JoinRequest,
        seed: &SigningSeed,
        workspace_id: Option<&str>,
    ) -> Result<JoinResponse, CallError> {
        let proofs = prove_join(&request, seed, workspace_id);
        self.unary_with_proofs(JOIN, Bytes::from(request.encode_to_vec()), None, proofs).await
    }
}

impl Client {
    /// Calls `Join`, signed, for the key of which `seed` is the private half. `workspace_id` is that of the key in the request, if it has
    /// one.
    ///
    /// # Errors
    /// As any call.
    pub async fn join(
        &self,
        request: JoinRequest,
        seed: &SigningSeed,
        workspace_id: Option<&str>,
    ) -> Result<JoinResponse, CallError> {
        self.call_with_proofs(JOIN, &request, prove_join(&request, seed, workspace_id)).await
    }

    /// Calls `Register`, signed, for the key of which `seed` is the private half. `workspace_id` is that of the key in the request, if it
    /// has one.
    ///
    /// # Errors
    /// As any call.
    pub async fn register(
        &self,
        request: RegisterRequest,
        seed: &SigningSeed,
        workspace_id: Option<&str>,
    ) -> Result<RegisterResponse, CallError> {
        let wrap = workspace_id.map(|workspace_id| {
            let wrap = WrapToSign {
                workspace_id,
                recipient: &request.x25519_public_key,
                ephemeral_public: request.ephemeral_pub(),
                nonce: request.kek_nonce(),
                wrapped: request.kek_wrapped(),
            };
            wrap.sign(self.identity().signing_seed())
        });
        let proofs = Proofs { key: Some(prove_key(REGISTER, &request, seed)), wrap };
        self.call_with_proofs(REGISTER, &request, proofs).await
    }

    /// Calls `CreateWorkspace`. The key in it is wrapped for the caller, and signed by it.
    ///
    /// # Errors
    /// As any call.
    pub async fn create_workspace(&self, request: CreateWorkspaceRequest) -> Result<Workspace, CallError> {
        let recipient = self.identity().exchange_key().map(|private| private.public().to_bytes());
        let wrap = recipient.map(|recipient| {
            let wrap = WrapToSign {
                workspace_id: &request.id,
                recipient: &recipient,
                ephemeral_public: &request.ephemeral_pub,
                nonce: &request.kek_nonce,
                wrapped: &request.kek_wrapped,
            };
            wrap.sign(self.identity().signing_seed())
        });
        self.call_with_proofs(CREATE_WORKSPACE, &request, Proofs { key: None, wrap }).await
    }

    /// Calls `GrantPrincipalWorkspaceAccess`. The key in it is that of the workspace with this ID, wrapped for `recipient`, and signed by
    /// the caller.
    ///
    /// # Errors
    /// As any call.
    pub async fn grant_principal_workspace_access(
        &self,
        request: GrantPrincipalWorkspaceAccessRequest,
        workspace_id: &str,
        recipient: &X25519Public,
    ) -> Result<Empty, CallError> {
        let wrap = WrapToSign {
            workspace_id,
            recipient: &recipient.to_bytes(),
            ephemeral_public: &request.ephemeral_pub,
            nonce: &request.kek_nonce,
            wrapped: &request.kek_wrapped,
        };
        let wrap = Some(wrap.sign(self.identity().signing_seed()));
        self.call_with_proofs(GRANT_ACCESS, &request, Proofs { key: None, wrap }).await
    }
}

fn prove_join(request: &JoinRequest, seed: &SigningSeed, workspace_id: Option<&str>) -> Proofs {
    let wrap = workspace_id.map(|workspace_id| {
        let wrap = WrapToSign {
            workspace_id,
            recipient: &request.x25519_public_key,
            ephemeral_public: &request.ephemeral_pub,
            nonce: &request.kek_nonce,
            wrapped: &request.kek_wrapped,
        };
        wrap.sign(seed)
    });
    Proofs { key: Some(prove_key(JOIN, request, seed)), wrap }
}

fn prove_key(rpc: Rpc, request: &impl Message, seed: &SigningSeed) -> [u8; 64] {
    signature::prove_key(seed, rpc.path, &request.encode_to_vec())
}

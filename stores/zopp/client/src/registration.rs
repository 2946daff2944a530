//! The calls that hand over a key, or something made of a workspace's key. Each carries further signatures, which stock servers ignore. They prove that the sender holds the
//! private half of the key that it registers, and that it made the wrap of the workspace key. They also name the generation of that key. The server refuses what was made of a key
//! that was replaced meanwhile.

use bytes::Bytes;
use konverge_zopp_crypto::{SigningSeed, WrapToSign, X25519Public, signature};
use konverge_zopp_proto::{
    CreateEnvironmentRequest, CreateInviteRequest, CreateWorkspaceRequest, Empty, Environment,
    GrantPrincipalWorkspaceAccessRequest, InviteToken, JoinRequest, JoinResponse, RegisterRequest, RegisterResponse,
    Workspace, identity,
};
use prost::Message;

use crate::{
    client::Client,
    connection::{Connection, Proofs, Rpc},
    error::CallError,
    workspace_key::WorkspaceKey,
};

const JOIN: Rpc = Rpc { name: "Join", path: "/zopp.ZoppService/Join" };
const REGISTER: Rpc = Rpc { name: "Register", path: "/zopp.ZoppService/Register" };
const CREATE_WORKSPACE: Rpc = Rpc { name: "CreateWorkspace", path: "/zopp.ZoppService/CreateWorkspace" };
const GRANT_ACCESS: Rpc =
    Rpc { name: "GrantPrincipalWorkspaceAccess", path: "/zopp.ZoppService/GrantPrincipalWorkspaceAccess" };

const CREATE_ENVIRONMENT: Rpc = Rpc { name: "CreateEnvironment", path: "/zopp.ZoppService/CreateEnvironment" };
const CREATE_INVITE: Rpc = Rpc { name: "CreateInvite", path: "/zopp.ZoppService/CreateInvite" };
const CREATE_LIMITED_INVITE: Rpc = Rpc { name: "CreateInvite", path: "/konverge.zopp.v1.Identity/CreateInvite" };

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

    /// Calls `Register`, signed, for the key of which `seed` is the private half. `workspace` is the key that is wrapped in the request, if one
    /// is.
    ///
    /// # Errors
    /// As any call.
    pub async fn register(
        &self,
        request: RegisterRequest,
        seed: &SigningSeed,
        workspace: Option<&WorkspaceKey>,
    ) -> Result<RegisterResponse, CallError> {
        let wrap = workspace.map(|workspace| {
            let wrap = WrapToSign {
                workspace_id: &workspace.id,
                recipient: &request.x25519_public_key,
                ephemeral_public: request.ephemeral_pub(),
                nonce: request.kek_nonce(),
                wrapped: request.kek_wrapped(),
            };
            wrap.sign(self.identity().signing_seed())
        });
        let generation = workspace.and_then(|workspace| workspace.generation);
        let proofs = Proofs { key: Some(prove_key(REGISTER, &request, seed)), wrap, generation };
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
        self.call_with_proofs(CREATE_WORKSPACE, &request, Proofs { wrap, ..Proofs::default() }).await
    }

    /// Calls `GrantPrincipalWorkspaceAccess`. The key in it is `workspace`, wrapped for `recipient`, and signed by
    /// the caller.
    ///
    /// # Errors
    /// As any call.
    pub async fn grant_principal_workspace_access(
        &self,
        request: GrantPrincipalWorkspaceAccessRequest,
        workspace: &WorkspaceKey,
        recipient: &X25519Public,
    ) -> Result<Empty, CallError> {
        let wrap = WrapToSign {
            workspace_id: &workspace.id,
            recipient: &recipient.to_bytes(),
            ephemeral_public: &request.ephemeral_pub,
            nonce: &request.kek_nonce,
            wrapped: &request.kek_wrapped,
        };
        let wrap = Some(wrap.sign(self.identity().signing_seed()));
        let proofs = Proofs { key: None, wrap, generation: workspace.generation };
        self.call_with_proofs(GRANT_ACCESS, &request, proofs).await
    }

    /// Calls `CreateEnvironment`. The key in it is wrapped with `workspace`.
    ///
    /// # Errors
    /// As any call.
    pub async fn create_environment(
        &self,
        request: CreateEnvironmentRequest,
        workspace: &WorkspaceKey,
    ) -> Result<Environment, CallError> {
        self.call_with_proofs(CREATE_ENVIRONMENT, &request, made_of(workspace)).await
    }

    /// Calls `CreateInvite`. The key in it is `workspace`, encrypted with the invite's secret.
    ///
    /// # Errors
    /// As any call.
    pub async fn create_invite(
        &self,
        request: CreateInviteRequest,
        workspace: &WorkspaceKey,
    ) -> Result<InviteToken, CallError> {
        self.call_with_proofs(CREATE_INVITE, &request, made_of(workspace)).await
    }

    /// Calls `konverge.zopp.v1.Identity/CreateInvite`. The key in it is `workspace`, encrypted with the invite's secret.
    ///
    /// # Errors
    /// As any call.
    pub async fn create_limited_invite(
        &self,
        request: identity::CreateInviteRequest,
        workspace: &WorkspaceKey,
    ) -> Result<identity::Invite, CallError> {
        self.call_with_proofs(CREATE_LIMITED_INVITE, &request, made_of(workspace)).await
    }
}

fn made_of(workspace: &WorkspaceKey) -> Proofs {
    Proofs { generation: workspace.generation, ..Proofs::default() }
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
    Proofs { key: Some(prove_key(JOIN, request, seed)), wrap, generation: None }
}

fn prove_key(rpc: Rpc, request: &impl Message, seed: &SigningSeed) -> [u8; 64] {
    signature::prove_key(seed, rpc.path, &request.encode_to_vec())
}

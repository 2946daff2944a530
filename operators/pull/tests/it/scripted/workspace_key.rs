//! The workspace key of the scripted server, with the chain of its generations.

use std::collections::BTreeSet;

use konverge_zopp_client::Fingerprint;
use konverge_zopp_crypto::{Kek, KeyAdministrators, KeyLink, SigningSeed};
use konverge_zopp_proto::identity::{self, identity_server::Identity};
use tonic::{Request, Response, Status};

use super::{Service, WORKSPACE_ID};

/// The generations of the key, the first one first, and the links between them.
pub(super) struct Generations {
    keks: Vec<Kek>,
    links: Vec<identity::KeyLink>,
}

impl Generations {
    pub(super) fn new() -> Self {
        Self { keks: vec![Kek::generate().unwrap()], links: Vec::new() }
    }

    /// Returns the current key.
    pub(super) fn kek(&self) -> &Kek {
        self.keks.last().unwrap()
    }

    /// Returns the number of the current generation.
    pub(super) fn number(&self) -> u32 {
        u32::try_from(self.keks.len()).unwrap()
    }

    /// Replaces the key as a client with the seed of `maker` does. `administrators` are those of the new key.
    pub(super) fn rotate(&mut self, maker: &SigningSeed, administrators: &[&SigningSeed]) {
        let new = Kek::generate().unwrap();
        let link = KeyLink::new(WORKSPACE_ID, self.number() + 1, self.kek(), &new).unwrap();
        let list = KeyAdministrators { key: link.new, administrators: fingerprints(administrators) };
        self.links.insert(
            0,
            identity::KeyLink {
                generation: link.generation,
                former_fingerprint: link.former.to_bytes().to_vec(),
                fingerprint: link.new.to_bytes().to_vec(),
                signature: link.sign(WORKSPACE_ID, maker).to_vec(),
                former_nonce: link.sealed.nonce.to_vec(),
                former_sealed: link.sealed.ciphertext,
                signer_id: "01890a5d-ac96-774b-bcce-b302099a8059".into(),
                signer_public_key: maker.public().to_bytes().to_vec(),
                administrators_signature: list.sign(maker).to_vec(),
                administrators: list.administrators.iter().map(|print| print.to_bytes().to_vec()).collect(),
                ..identity::KeyLink::default()
            },
        );
        self.keks.push(new);
    }

    /// Forgets the last rotation.
    pub(super) fn go_back(&mut self) {
        self.keks.pop();
        self.links.remove(0);
    }
}

/// Returns the fingerprints of principals that have no X25519 key.
pub(super) fn fingerprints(seeds: &[&SigningSeed]) -> BTreeSet<Fingerprint> {
    seeds.iter().map(|seed| Fingerprint::of_principal(&seed.public().to_bytes(), &[])).collect()
}

macro_rules! identity_with_chain_alone {
    ($($call:ident($request:ident) -> $response:ident;)*) => {
        #[tonic::async_trait]
        impl Identity for Service {
            async fn get_key_chain(
                &self,
                _: Request<identity::GetKeyChainRequest>,
            ) -> Result<Response<identity::GetKeyChainResponse>, Status> {
                let links = self.0.generations().links.clone();
                Ok(Response::new(identity::GetKeyChainResponse { workspace_id: WORKSPACE_ID.into(), links }))
            }

            $(async fn $call(&self, _: Request<identity::$request>) -> Result<Response<identity::$response>, Status> {
                Err(Status::unimplemented(""))
            })*
        }
    };
}

identity_with_chain_alone! {
    disable_principal(DisablePrincipalRequest) -> DisablePrincipalResponse;
    enable_principal(EnablePrincipalRequest) -> EnablePrincipalResponse;
    remove_member(RemoveMemberRequest) -> RemoveMemberResponse;
    transfer_ownership(TransferOwnershipRequest) -> TransferOwnershipResponse;
    delete_workspace(DeleteWorkspaceRequest) -> DeleteWorkspaceResponse;
    remove_user(RemoveUserRequest) -> RemoveUserResponse;
    create_invite(CreateInviteRequest) -> Invite;
    list_invites(ListInvitesRequest) -> ListInvitesResponse;
    get_key_signature(GetKeySignatureRequest) -> GetKeySignatureResponse;
    get_key_state(GetKeyStateRequest) -> GetKeyStateResponse;
    rotate_workspace_key(RotateWorkspaceKeyRequest) -> RotateWorkspaceKeyResponse;
}

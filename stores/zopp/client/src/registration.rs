//! The calls that register a key. Each carries the proof that its sender holds the private half, which stock servers ignore.

use bytes::Bytes;
use konverge_zopp_crypto::{SigningSeed, signature};
use konverge_zopp_proto::{JoinRequest, JoinResponse, RegisterRequest, RegisterResponse};
use prost::Message;

use crate::{
    client::Client,
    connection::{Connection, KeyProof, Rpc},
    error::CallError,
};

const JOIN: Rpc = Rpc { name: "Join", path: "/zopp.ZoppService/Join" };
const REGISTER: Rpc = Rpc { name: "Register", path: "/zopp.ZoppService/Register" };

impl Connection {
    /// Calls `Join`, unsigned, for the key of which `seed` is the private half.
    pub async fn join(&self, request: JoinRequest, seed: &SigningSeed) -> Result<JoinResponse, CallError> {
        let proof = prove(JOIN, &request, seed);
        self.unary_with_proof(JOIN, Bytes::from(request.encode_to_vec()), None, Some(&proof)).await
    }
}

impl Client {
    /// Calls `Join`, signed, for the key of which `seed` is the private half.
    pub async fn join(&self, request: JoinRequest, seed: &SigningSeed) -> Result<JoinResponse, CallError> {
        self.call_with_proof(JOIN, &request, Some(&prove(JOIN, &request, seed))).await
    }

    /// Calls `Register`, signed, for the key of which `seed` is the private half.
    pub async fn register(&self, request: RegisterRequest, seed: &SigningSeed) -> Result<RegisterResponse, CallError> {
        self.call_with_proof(REGISTER, &request, Some(&prove(REGISTER, &request, seed))).await
    }
}

fn prove(rpc: Rpc, request: &impl Message, seed: &SigningSeed) -> KeyProof {
    KeyProof(signature::prove_key(seed, rpc.path, &request.encode_to_vec()))
}

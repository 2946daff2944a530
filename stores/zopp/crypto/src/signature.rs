//! Request signatures in both generations, and how old one may be.
//!
//! With `M` the full method path, `B` the canonical protobuf bytes of the request and `T` the timestamp as eight
//! little-endian bytes, `H = SHA-256(M ‖ B)` and
//!
//! - [`Profile::V2`] signs `M ‖ H ‖ T`,
//! - [`Profile::V1`] signs `T` alone: an attacker who captures one signature can send any call in its name for a
//!   minute.
//!
//! ```
//! use konverge_zopp_crypto::{Profile, SigningSeed, signature};
//!
//! let seed = SigningSeed::generate()?;
//! let method = "/zopp.ZoppService/ListWorkspaces";
//! let signed = signature::sign(Profile::V2, &seed, method, b"", 1_700_000_000);
//! signature::verify(Profile::V2, &seed.public(), method, b"", &signed)?;
//! assert!(signature::verify(Profile::V2, &seed.public(), method, b"other", &signed).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use ed25519_dalek::{Signer, Verifier};
use sha2::{Digest, Sha256};

use crate::keys::{SigningPublic, SigningSeed};

/// Metadata key of the caller's principal id (UUID text).
pub const PRINCIPAL_ID_KEY: &str = "principal-id";
/// Metadata key of the time of signing (decimal Unix seconds).
pub const TIMESTAMP_KEY: &str = "timestamp";
/// Metadata key of the signature (128 hexadecimal digits).
pub const SIGNATURE_KEY: &str = "signature";
/// Metadata key of the request hash (64 hexadecimal digits); its absence marks a first-generation caller.
pub const REQUEST_HASH_KEY: &str = "request-hash";

/// Metadata key of the proof that a registering principal holds its key (128 hexadecimal digits). Not of the published contract:
/// stock servers do not read it, stock clients do not send it.
pub const KEY_PROOF_KEY: &str = "key-proof";

/// The prefix of a proof. It prevents that a proof is valid as a request's signature, or the other way round.
const KEY_PROOF_CONTEXT: &[u8] = b"konverge-zopp-key-proof-v1";

/// A signature older than this many seconds is refused.
pub const MAXIMUM_AGE_SECONDS: i64 = 60;
/// A signature from further in the future than this many seconds is refused.
pub const MAXIMUM_LEAD_SECONDS: i64 = 30;

/// The two generations of the wire protocol, which differ in what a signature covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// The published 0.1.1: the signature covers the timestamp only.
    V1,
    /// The signature covers method, request and timestamp.
    V2,
}

/// The proof of identity that a client sends, beside its principal id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// Unix seconds at which it was signed.
    pub timestamp: i64,
    /// The Ed25519 signature.
    pub signature: [u8; 64],
    /// SHA-256 over method and request; absent in [`Profile::V1`].
    pub request_hash: Option<[u8; 32]>,
}

/// Metadata that is not a signature, whatever it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The timestamp is not a decimal 64-bit number.
    #[error("timestamp is not a number of seconds")]
    Timestamp,
    /// The signature is not 64 bytes in hexadecimal.
    #[error("signature is not 64 bytes in hexadecimal")]
    Signature,
    /// The request hash is not 32 bytes in hexadecimal.
    #[error("request hash is not 32 bytes in hexadecimal")]
    RequestHash,
}

impl Signed {
    /// Reads the three metadata values.
    pub fn parse(timestamp: &str, signature: &str, request_hash: Option<&str>) -> Result<Self, ParseError> {
        let timestamp = timestamp.parse().map_err(|_| ParseError::Timestamp)?;
        let mut bytes = [0; 64];
        hex::decode_to_slice(signature, &mut bytes).map_err(|_| ParseError::Signature)?;
        let request_hash = match request_hash {
            None => None,
            Some(text) => {
                let mut hash = [0; 32];
                hex::decode_to_slice(text, &mut hash).map_err(|_| ParseError::RequestHash)?;
                Some(hash)
            }
        };
        Ok(Self { timestamp, signature: bytes, request_hash })
    }

    /// The profile the caller speaks: one without a request hash is first generation.
    pub fn profile(&self) -> Profile {
        if self.request_hash.is_some() { Profile::V2 } else { Profile::V1 }
    }

    /// The value for [`SIGNATURE_KEY`].
    pub fn signature_hex(&self) -> String {
        hex::encode(self.signature)
    }

    /// The value for [`REQUEST_HASH_KEY`], if the profile has one.
    pub fn request_hash_hex(&self) -> Option<String> {
        self.request_hash.map(hex::encode)
    }
}

/// Signs one request. `method` is the full path with its leading slash, `body` the canonical protobuf encoding (what
/// `prost::Message::encode_to_vec` gives, without the five bytes of the gRPC frame), `timestamp` Unix seconds.
pub fn sign(profile: Profile, seed: &SigningSeed, method: &str, body: &[u8], timestamp: i64) -> Signed {
    let key = ed25519_dalek::SigningKey::from_bytes(seed.expose());
    let request_hash = match profile {
        Profile::V1 => None,
        Profile::V2 => Some(request_hash(method, body)),
    };
    let signature = key.sign(&signed_bytes(method, request_hash.as_ref(), timestamp)).to_bytes();
    Signed { timestamp, signature, request_hash }
}

/// Why a signature does not prove the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// [`Profile::V2`] was required and there is no request hash.
    #[error("request hash is missing")]
    MissingRequestHash,
    /// The request hash is not that of this method and request.
    #[error("request hash does not match the request")]
    RequestHashMismatch,
    /// The signature is not by this key over these bytes.
    #[error("signature does not match")]
    BadSignature,
}

/// Verifies one request by the rules of `profile`. Permissive Ed25519 (RFC 8032 without the strict checks), as stock
/// servers do. The age of the signature is a matter of its own: [`check_age`].
pub fn verify(
    profile: Profile,
    public: &SigningPublic,
    method: &str,
    body: &[u8],
    signed: &Signed,
) -> Result<(), VerifyError> {
    verify_hashed(profile, public, method, &request_hash(method, body), signed)
}

/// Verifies a signature like [`verify`], by the [`request_hash`] of the request instead of its bytes.
pub fn verify_hashed(
    profile: Profile,
    public: &SigningPublic,
    method: &str,
    request_hash: &[u8; 32],
    signed: &Signed,
) -> Result<(), VerifyError> {
    let hash = match profile {
        Profile::V1 => None,
        Profile::V2 => {
            let claimed = signed.request_hash.ok_or(VerifyError::MissingRequestHash)?;
            if claimed != *request_hash {
                return Err(VerifyError::RequestHashMismatch);
            }
            Some(claimed)
        }
    };
    let signature = ed25519_dalek::Signature::from_bytes(&signed.signature);
    public
        .0
        .verify(&signed_bytes(method, hash.as_ref(), signed.timestamp), &signature)
        .map_err(|_| VerifyError::BadSignature)
}

/// Proves, within a request that registers the public half of `seed`, that its sender holds the private one. The proof is for this
/// call with this content, and so for each other key and name in it.
pub fn prove_key(seed: &SigningSeed, method: &str, body: &[u8]) -> [u8; 64] {
    sign_bytes(seed, &proof_bytes(method, body))
}

/// Verifies what [`prove_key`] made, strictly: keys of low order prove nothing.
pub fn verify_key_proof(
    public: &SigningPublic,
    method: &str,
    body: &[u8],
    proof: &[u8; 64],
) -> Result<(), VerifyError> {
    verify_strictly(public, &proof_bytes(method, body), proof)
}

/// Signs bytes whose context separates them from what other signatures are about.
pub(crate) fn sign_bytes(seed: &SigningSeed, bytes: &[u8]) -> [u8; 64] {
    ed25519_dalek::SigningKey::from_bytes(seed.expose()).sign(bytes).to_bytes()
}

/// Verifies what [`sign_bytes`] made, strictly: keys of low order prove nothing. A signature of another length is a bad one.
pub(crate) fn verify_strictly(signer: &SigningPublic, bytes: &[u8], signature: &[u8]) -> Result<(), VerifyError> {
    let signature = ed25519_dalek::Signature::from_slice(signature).map_err(|_| VerifyError::BadSignature)?;
    signer.0.verify_strict(bytes, &signature).map_err(|_| VerifyError::BadSignature)
}

fn proof_bytes(method: &str, body: &[u8]) -> Vec<u8> {
    [KEY_PROOF_CONTEXT, request_hash(method, body).as_slice()].concat()
}

/// A signature from outside the window in which it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AgeError {
    /// Older than [`MAXIMUM_AGE_SECONDS`].
    #[error("timestamp is more than {MAXIMUM_AGE_SECONDS} s old; check the clocks of client and server")]
    TooOld,
    /// Further ahead than [`MAXIMUM_LEAD_SECONDS`].
    #[error("timestamp is more than {MAXIMUM_LEAD_SECONDS} s in the future; check the clocks of client and server")]
    TooNew,
}

/// Is a signature made at `timestamp` still (or already) good at `now`? Both in Unix seconds.
pub fn check_age(timestamp: i64, now: i64) -> Result<(), AgeError> {
    // Saturating: a caller may claim any 64-bit time.
    let age = now.saturating_sub(timestamp);
    if age > MAXIMUM_AGE_SECONDS {
        Err(AgeError::TooOld)
    } else if age < -MAXIMUM_LEAD_SECONDS {
        Err(AgeError::TooNew)
    } else {
        Ok(())
    }
}

/// SHA-256 over method path and canonical request bytes.
pub fn request_hash(method: &str, body: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(method).chain_update(body).finalize().into()
}

fn signed_bytes(method: &str, request_hash: Option<&[u8; 32]>, timestamp: i64) -> Vec<u8> {
    let timestamp = timestamp.to_le_bytes();
    match request_hash {
        None => timestamp.to_vec(),
        Some(hash) => [method.as_bytes(), hash, &timestamp].concat(),
    }
}

#[cfg(test)]
mod tests;

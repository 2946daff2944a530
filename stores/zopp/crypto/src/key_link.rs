//! The links between the generations of a workspace's key: which key replaced which one, shown by a holder of the former key.
//!
//! A server knows the public key of every principal, so it can wrap a workspace key of its own and call it the next generation. A link proves
//! two things that it cannot make up. The former key is sealed under the new one, so the maker of the link knew both. A client that opens it
//! compares the former key with the one that it pinned. And the principal that replaced the key signs the link.
//!
//! # What it does not do
//! Somebody who was removed from the workspace still knows the former key. Together with a lying server, that person can make a link. Only
//! the signature tells this link from one by a member, so clients compare the signer with the principals that they know.

use crate::{
    envelope::{OpenError, SealError, Sealed, open, seal},
    fingerprint::Fingerprint,
    keys::{Kek, SigningPublic, SigningSeed},
    signature::{VerifyError, sign_bytes, verify_strictly},
    wrap_signature::SIGNATURE_LENGTH,
};

/// Metadata of a call that carries something made of a workspace's key: the generation of that key, in decimal digits. The server refuses a call
/// that was made with a former key. Stock servers ignore it.
pub const KEY_GENERATION_KEY: &str = "workspace-key-generation";

/// Separates these signatures from those of requests, key proofs and wraps.
const CONTEXT: &[u8] = b"konverge.zopp.v1 replaced workspace key\0";

/// The step from one generation of a workspace's key to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLink {
    /// The generation to which the link leads. The first key is generation 1 and has no link.
    pub generation: u32,
    /// The fingerprint of the former key.
    pub former: Fingerprint,
    /// The fingerprint of the new key.
    pub new: Fingerprint,
    /// The former key, sealed under the new one.
    pub sealed: Sealed,
}

/// A link does not lead from the key that it names to the key that it was opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It is of two other keys.
    #[error("it names other keys than it connects")]
    OtherKeys,
    /// Its signature is not by its signer.
    #[error(transparent)]
    Signature(#[from] VerifyError),
}

impl KeyLink {
    /// Makes the link by which `new` replaces `former` as the key of this generation.
    ///
    /// # Errors
    /// As for any envelope: no random bytes.
    pub fn new(workspace_id: &str, generation: u32, former: &Kek, new: &Kek) -> Result<Self, SealError> {
        Ok(Self {
            generation,
            former: Fingerprint::of_workspace(workspace_id, former),
            new: Fingerprint::of_workspace(workspace_id, new),
            sealed: seal(new.expose(), former.expose(), &bind(workspace_id, generation))?,
        })
    }

    /// Signs the link in the name of the principal that replaced the key.
    pub fn sign(&self, workspace_id: &str, seed: &SigningSeed) -> [u8; SIGNATURE_LENGTH] {
        sign_bytes(seed, &self.bytes(workspace_id))
    }

    /// Verifies a signature, strictly: keys of low order prove nothing.
    ///
    /// # Errors
    /// [`VerifyError::BadSignature`] if the signature is not by this key over this link, or has another length.
    pub fn verify(&self, workspace_id: &str, signer: &SigningPublic, signature: &[u8]) -> Result<(), VerifyError> {
        verify_strictly(signer, &self.bytes(workspace_id), signature)
    }

    /// Returns the former key, opened with the new one.
    ///
    /// # Errors
    /// If the link was made for another workspace, generation or key, was altered, or names other keys than these two.
    pub fn open(&self, workspace_id: &str, new: &Kek) -> Result<Kek, LinkError> {
        let Sealed { nonce, ciphertext } = &self.sealed;
        let opened = open(new.expose(), nonce, ciphertext, &bind(workspace_id, self.generation))?;
        let former = Kek::from_slice(&opened).map_err(OpenError::WrappedKey)?;
        let are_named = self.new == Fingerprint::of_workspace(workspace_id, new)
            && self.former == Fingerprint::of_workspace(workspace_id, &former);
        if are_named { Ok(former) } else { Err(LinkError::OtherKeys) }
    }

    fn bytes(&self, workspace_id: &str) -> Vec<u8> {
        let mut bytes = CONTEXT.to_vec();
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.former.to_bytes());
        bytes.extend_from_slice(&self.new.to_bytes());
        bytes.extend_from_slice(&self.sealed.nonce);
        for part in [workspace_id.as_bytes(), &self.sealed.ciphertext] {
            // With its length, so that no two links are the same bytes.
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

/// Never the context of a wrapped key of an environment, which is sealed under the same key: that begins with another word.
fn bind(workspace_id: &str, generation: u32) -> String {
    format!("konverge-former-key:{workspace_id}:{generation}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> (Kek, Kek, KeyLink) {
        let (former, new) = (Kek::generate().unwrap(), Kek::generate().unwrap());
        let link = KeyLink::new("w", 2, &former, &new).unwrap();
        (former, new, link)
    }

    #[test]
    fn the_new_key_opens_the_former_one_and_no_other_key_does() {
        let (former, new, link) = link();
        assert_eq!(link.open("w", &new).unwrap().expose(), former.expose());
        let not_authentic = Some(LinkError::Open(OpenError::NotAuthentic));
        assert_eq!(link.open("w", &former).err(), not_authentic, "the former key opens nothing");
        assert_eq!(link.open("v", &new).err(), not_authentic);
        assert_eq!(KeyLink { generation: 3, ..link.clone() }.open("w", &new).err(), not_authentic);
        let other = Fingerprint::of_principal(b"", b"");
        for wrong in [KeyLink { former: other, ..link.clone() }, KeyLink { new: other, ..link }] {
            assert_eq!(wrong.open("w", &new).err(), Some(LinkError::OtherKeys));
        }
    }

    #[test]
    fn a_signature_is_for_one_link_by_one_signer() {
        let (_, _, link) = link();
        let (seed, other_seed) = (SigningSeed::generate().unwrap(), SigningSeed::generate().unwrap());
        let signature = link.sign("w", &seed);
        assert_eq!(link.verify("w", &seed.public(), &signature), Ok(()));
        assert_eq!(link.verify("w", &other_seed.public(), &signature), Err(VerifyError::BadSignature));
        assert_eq!(link.verify("v", &seed.public(), &signature), Err(VerifyError::BadSignature));
        let other = Fingerprint::of_principal(b"", b"");
        let mut other_nonce = link.clone();
        other_nonce.sealed.nonce[0] ^= 1;
        let mut other_key = link.clone();
        other_key.sealed.ciphertext[0] ^= 1;
        for wrong in [
            KeyLink { generation: 3, ..link.clone() },
            KeyLink { former: other, ..link.clone() },
            KeyLink { new: other, ..link.clone() },
            other_nonce,
            other_key,
        ] {
            assert_eq!(wrong.verify("w", &seed.public(), &signature), Err(VerifyError::BadSignature), "{wrong:?}");
        }
        for length in [0, 63, 65] {
            assert_eq!(link.verify("w", &seed.public(), &vec![0; length]), Err(VerifyError::BadSignature));
        }
    }
}

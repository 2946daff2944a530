//! Signatures over wrapped workspace keys: which principal wrapped this key for that recipient.
//!
//! A wrap proves nothing by itself: everybody who knows the recipient's public key can make one, above all the server. The principal that
//! makes a wrap therefore signs it. The signature covers the workspace, the recipient and every byte of the wrap.

use crate::{
    hierarchy::WrappedKek,
    keys::{SigningPublic, SigningSeed, X25519Public},
    signature::{VerifyError, sign_bytes, verify_strictly},
};

/// Metadata of a call that hands over a wrap: the hexadecimal signature. Stock servers ignore it.
pub const WRAP_SIGNATURE_KEY: &str = "wrap-signature";

/// Separates these signatures from those of requests and of key proofs.
const CONTEXT: &[u8] = b"konverge.zopp.v1 wrapped workspace key\0";

/// Bytes of a signature.
pub const SIGNATURE_LENGTH: usize = 64;

/// A wrap as it goes over the wire, and its recipient.
#[derive(Debug, Clone, Copy)]
pub struct WrapToSign<'a> {
    /// The workspace's lower-case UUID.
    pub workspace_id: &'a str,
    /// The public key for which the workspace key is wrapped.
    pub recipient: &'a [u8],
    /// The public half of the key pair of this one wrap.
    pub ephemeral_public: &'a [u8],
    /// The nonce of the envelope.
    pub nonce: &'a [u8],
    /// The envelope's ciphertext.
    pub wrapped: &'a [u8],
}

impl WrapToSign<'_> {
    /// Signs the wrap in the name of the principal that made it.
    pub fn sign(&self, seed: &SigningSeed) -> [u8; SIGNATURE_LENGTH] {
        sign_bytes(seed, &self.bytes())
    }

    /// Verifies a signature, strictly: keys of low order prove nothing.
    ///
    /// # Errors
    /// [`VerifyError::BadSignature`] if the signature is not by this key over this wrap, or has another length.
    pub fn verify(&self, signer: &SigningPublic, signature: &[u8]) -> Result<(), VerifyError> {
        verify_strictly(signer, &self.bytes(), signature)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = CONTEXT.to_vec();
        for part in [self.workspace_id.as_bytes(), self.recipient, self.ephemeral_public, self.nonce, self.wrapped] {
            // With its length, so that no two wraps are the same bytes.
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

impl WrappedKek {
    /// Signs the wrap in the name of the principal that made it for `recipient`.
    pub fn sign(&self, seed: &SigningSeed, recipient: &X25519Public, workspace_id: &str) -> [u8; SIGNATURE_LENGTH] {
        let wrap = WrapToSign {
            workspace_id,
            recipient: &recipient.to_bytes(),
            ephemeral_public: &self.ephemeral_public.to_bytes(),
            nonce: &self.sealed.nonce,
            wrapped: &self.sealed.ciphertext,
        };
        wrap.sign(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kek, X25519Private};

    #[test]
    fn a_signature_is_for_one_wrap_of_one_workspace_for_one_recipient_by_one_signer() {
        let (seed, other_seed) = (SigningSeed::generate().unwrap(), SigningSeed::generate().unwrap());
        let recipient = X25519Private::generate().unwrap().public();
        let made = Kek::generate().unwrap().wrap_for(&recipient, "w").unwrap();
        let signature = made.sign(&seed, &recipient, "w");
        let (to, ephemeral) = (recipient.to_bytes(), made.ephemeral_public.to_bytes());
        let wrap = WrapToSign {
            workspace_id: "w",
            recipient: &to,
            ephemeral_public: &ephemeral,
            nonce: &made.sealed.nonce,
            wrapped: &made.sealed.ciphertext,
        };
        assert_eq!(wrap.verify(&seed.public(), &signature), Ok(()));

        let altered = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes[0] ^= 1;
            bytes
        };
        let (other_to, other_ephemeral) = (altered(&to), altered(&ephemeral));
        let (other_nonce, other_wrapped) = (altered(&made.sealed.nonce), altered(&made.sealed.ciphertext));
        for wrong in [
            WrapToSign { workspace_id: "v", ..wrap },
            WrapToSign { recipient: &other_to, ..wrap },
            WrapToSign { ephemeral_public: &other_ephemeral, ..wrap },
            WrapToSign { nonce: &other_nonce, ..wrap },
            WrapToSign { wrapped: &other_wrapped, ..wrap },
            // The same bytes, cut elsewhere.
            WrapToSign {
                nonce: &[],
                wrapped: &[made.sealed.nonce.as_slice(), &made.sealed.ciphertext].concat(),
                ..wrap
            },
        ] {
            assert_eq!(wrong.verify(&seed.public(), &signature), Err(VerifyError::BadSignature), "{wrong:?}");
        }
        assert_eq!(wrap.verify(&other_seed.public(), &signature), Err(VerifyError::BadSignature));
        assert_eq!(wrap.verify(&seed.public(), &altered(&signature)), Err(VerifyError::BadSignature));
        for length in [0, 63, 65] {
            assert_eq!(wrap.verify(&seed.public(), &vec![0; length]), Err(VerifyError::BadSignature));
        }
    }
}

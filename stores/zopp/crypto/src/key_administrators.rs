//! The administrators of a workspace's key: the principals that may replace it.
//!
//! The principal that makes a key signs the list of those that may replace it. A client that knows the administrators of a key accepts a link to the
//! next key from them only, and goes on with the list that comes with the link. So a principal that a list no longer names is no longer believed.
//!
//! The list has a signature of its own. A client that does not know lists verifies the [`KeyLink`](crate::KeyLink) as before.
//!
//! # What it does not do
//! A list is as true as the knowledge of the principal that signed it. It takes from the server who has the role.

use std::collections::BTreeSet;

use crate::{
    fingerprint::Fingerprint,
    keys::{SigningPublic, SigningSeed},
    signature::{VerifyError, sign_bytes, verify_strictly},
    wrap_signature::SIGNATURE_LENGTH,
};

/// Separates these signatures from those of requests, key proofs, wraps and links.
const CONTEXT: &[u8] = b"konverge.zopp.v1 administrators of workspace key\0";

/// The principals that may replace one key of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyAdministrators {
    /// The fingerprint of the key, which is also bound to the workspace.
    pub key: Fingerprint,
    /// The fingerprints of the principals.
    pub administrators: BTreeSet<Fingerprint>,
}

impl KeyAdministrators {
    /// Signs the list in the name of the principal that made the key.
    pub fn sign(&self, seed: &SigningSeed) -> [u8; SIGNATURE_LENGTH] {
        sign_bytes(seed, &self.bytes())
    }

    /// Verifies a signature, strictly: keys of low order prove nothing.
    ///
    /// # Errors
    /// [`VerifyError::BadSignature`] if the signature is not by this key over this list, or has another length.
    pub fn verify(&self, signer: &SigningPublic, signature: &[u8]) -> Result<(), VerifyError> {
        verify_strictly(signer, &self.bytes(), signature)
    }

    /// All parts have a fixed length, so no two lists are the same bytes.
    fn bytes(&self) -> Vec<u8> {
        let prints = std::iter::once(&self.key).chain(&self.administrators);
        CONTEXT.iter().copied().chain(prints.flat_map(|print| print.to_bytes())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(byte: u8) -> Fingerprint {
        Fingerprint::of_principal(&[byte], &[])
    }

    #[test]
    fn a_signature_is_for_one_key_and_one_list() {
        let [seed, other] = [(); 2].map(|()| SigningSeed::generate().unwrap());
        let list = KeyAdministrators { key: print(1), administrators: [print(2), print(3)].into() };
        let signature = list.sign(&seed);
        assert_eq!(list.verify(&seed.public(), &signature), Ok(()));
        assert_eq!(list.verify(&other.public(), &signature), Err(VerifyError::BadSignature));
        for wrong in [
            KeyAdministrators { key: print(4), ..list.clone() },
            KeyAdministrators { administrators: [print(2)].into(), ..list.clone() },
            KeyAdministrators { administrators: [print(2), print(3), print(4)].into(), ..list.clone() },
            KeyAdministrators { administrators: BTreeSet::new(), ..list.clone() },
        ] {
            assert_eq!(wrong.verify(&seed.public(), &signature), Err(VerifyError::BadSignature), "{wrong:?}");
        }
        for length in [0, 63, 65] {
            assert_eq!(list.verify(&seed.public(), &vec![0; length]), Err(VerifyError::BadSignature));
        }
    }
}

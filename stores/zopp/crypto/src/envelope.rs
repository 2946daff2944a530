//! The one kind of envelope everything is stored in: XChaCha20-Poly1305 with a random 24-byte nonce and the names of
//! what it belongs to as additional data.

use chacha20poly1305::{
    XChaCha20Poly1305,
    aead::{Aead, KeyInit, Payload},
};
use zeroize::Zeroizing;

use crate::keys::{EntropyError, KEY_LENGTH, KeyError, random};

/// Bytes in a nonce.
pub const NONCE_LENGTH: usize = 24;
/// Bytes by which a ciphertext is longer than its plaintext.
pub const TAG_LENGTH: usize = 16;

/// An envelope: what the server stores in place of the plaintext.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Random, used once.
    pub nonce: [u8; NONCE_LENGTH],
    /// The encrypted bytes followed by the tag.
    pub ciphertext: Vec<u8>,
}

/// No envelope could be made.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// No nonce or ephemeral key.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// The recipient's public key is one of the few for which anybody could compute the shared secret.
    #[error("recipient's public key is weak")]
    WeakPublicKey,
    /// The plaintext is beyond the cipher's 256 GiB.
    #[error("plaintext is too long")]
    TooLong,
}

/// An envelope could not be opened. Which of key, names or bytes is wrong cannot be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Another number of nonce bytes than [`NONCE_LENGTH`].
    #[error("nonce is {found} bytes long instead of {NONCE_LENGTH}")]
    NonceLength {
        /// How many bytes there were.
        found: usize,
    },
    /// Fewer bytes than a tag.
    #[error("ciphertext is {found} bytes long, shorter than its tag of {TAG_LENGTH}")]
    Truncated {
        /// How many bytes there were.
        found: usize,
    },
    /// Made with another key, for other names, or changed since.
    #[error("decryption failed: made with another key, for another name, or altered")]
    NotAuthentic,
    /// A wrapped key came out with the wrong length.
    #[error("wrapped key is malformed: {0}")]
    WrappedKey(KeyError),
    /// The sender's ephemeral public key has the wrong length.
    #[error("ephemeral public key is malformed: {0}")]
    EphemeralKey(KeyError),
    /// The sender's ephemeral public key is one for which anybody could compute the shared secret.
    #[error("ephemeral public key is weak")]
    WeakPublicKey,
}

pub(crate) fn seal(key: &[u8; KEY_LENGTH], plaintext: &[u8], names: &str) -> Result<Sealed, SealError> {
    seal_with_nonce(key, random()?, plaintext, names)
}

/// Only tests choose their nonce: the same nonce twice under one key gives both plaintexts away.
pub(crate) fn seal_with_nonce(
    key: &[u8; KEY_LENGTH],
    nonce: [u8; NONCE_LENGTH],
    plaintext: &[u8],
    names: &str,
) -> Result<Sealed, SealError> {
    let payload = Payload { msg: plaintext, aad: names.as_bytes() };
    let ciphertext =
        XChaCha20Poly1305::new(key.into()).encrypt(&nonce.into(), payload).map_err(|_| SealError::TooLong)?;
    Ok(Sealed { nonce, ciphertext })
}

pub(crate) fn open(
    key: &[u8; KEY_LENGTH],
    nonce: &[u8],
    ciphertext: &[u8],
    names: &str,
) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let nonce: [u8; NONCE_LENGTH] = nonce.try_into().map_err(|_| OpenError::NonceLength { found: nonce.len() })?;
    if ciphertext.len() < TAG_LENGTH {
        return Err(OpenError::Truncated { found: ciphertext.len() });
    }
    let payload = Payload { msg: ciphertext, aad: names.as_bytes() };
    XChaCha20Poly1305::new(key.into())
        .decrypt(&nonce.into(), payload)
        .map(Zeroizing::new)
        .map_err(|_| OpenError::NotAuthentic)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn opens_what_was_sealed(key: [u8; 32], plaintext: Vec<u8>, names in ".*") {
            let sealed = seal(&key, &plaintext, &names).unwrap();
            prop_assert_eq!(sealed.ciphertext.len(), plaintext.len() + TAG_LENGTH);
            let opened = open(&key, &sealed.nonce, &sealed.ciphertext, &names).unwrap();
            prop_assert_eq!(&*opened, &plaintext);
        }

        #[test]
        fn any_other_key_name_or_byte_fails(key: [u8; 32], other: [u8; 32], at: prop::sample::Index, bit in 0..8_u32) {
            let sealed = seal(&key, b"value", "a").unwrap();
            prop_assert_eq!(open(&key, &sealed.nonce, &sealed.ciphertext, "b").err(), Some(OpenError::NotAuthentic));
            if other != key {
                prop_assert_eq!(
                    open(&other, &sealed.nonce, &sealed.ciphertext, "a").err(),
                    Some(OpenError::NotAuthentic)
                );
            }
            let mut altered = sealed.ciphertext.clone();
            let at = at.index(altered.len());
            altered[at] ^= 1 << bit;
            prop_assert_eq!(open(&key, &sealed.nonce, &altered, "a").err(), Some(OpenError::NotAuthentic));
        }

        #[test]
        fn every_truncation_fails(keep in 0..21_usize) {
            let sealed = seal(&[7; 32], b"value", "a").unwrap();
            let expected =
                if keep < TAG_LENGTH { OpenError::Truncated { found: keep } } else { OpenError::NotAuthentic };
            prop_assert_eq!(open(&[7; 32], &sealed.nonce, &sealed.ciphertext[..keep], "a").err(), Some(expected));
        }

        #[test]
        fn any_bytes_are_an_error_not_a_panic(nonce: Vec<u8>, ciphertext: Vec<u8>) {
            prop_assert!(open(&[7; 32], &nonce, &ciphertext, "a").is_err());
        }
    }

    #[test]
    fn a_one_byte_nonce_is_an_error() {
        assert_eq!(open(&[7; 32], &[1], &[0; 32], "a").err(), Some(OpenError::NonceLength { found: 1 }));
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(seal(&[7; 32], b"", "").unwrap().nonce, seal(&[7; 32], b"", "").unwrap().nonce);
    }
}

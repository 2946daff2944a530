//! Private keys in a file, encrypted with a passphrase of the device.
//!
//! Argon2id and HKDF-Expand derive the key of the file from the passphrase and a random salt in the file. Each private key is in a separate
//! envelope, bound to the public key of its principal.
//!
//! ```compile_fail
//! fn wants_debug<T: std::fmt::Debug>(_: T) {}
//! wants_debug(konverge_zopp_crypto::export::Passphrase::new(String::new()).file_key(&[0; 16]).unwrap());
//! ```

use zeroize::Zeroizing;

use crate::{
    envelope::{NONCE_LENGTH, OpenError, SealError, Sealed, open, seal},
    keys::KEY_LENGTH,
};

/// The prefix of an encrypted private key.
pub const SEALED_PREFIX: &str = "sealed:";
/// The prefix of the context of the envelopes, before their owner.
const CONTEXT: &str = "konverge.zopp.v2 private key at rest";

/// The key of a file with encrypted private keys. Wiped on drop, without `Debug`.
pub struct FileKey(Zeroizing<[u8; KEY_LENGTH]>);

impl FileKey {
    pub(crate) fn new(bytes: Zeroizing<[u8; KEY_LENGTH]>) -> Self {
        Self(bytes)
    }

    /// Encrypts a private key. `owner` names its principal and what the key is for.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn seal(&self, private_key: &str, owner: &str) -> Result<String, SealError> {
        let Sealed { nonce, ciphertext } = seal(&self.0, private_key.as_bytes(), &bind(owner))?;
        Ok(format!("{SEALED_PREFIX}{}{}", hex::encode(nonce), hex::encode(ciphertext)))
    }

    /// Decrypts a private key that [`FileKey::seal`] encrypted.
    ///
    /// # Errors
    /// [`OpenError`], also for a text that is not of this form.
    pub fn open(&self, text: &str, owner: &str) -> Result<Zeroizing<String>, OpenError> {
        let bytes = text.strip_prefix(SEALED_PREFIX).and_then(|digits| hex::decode(digits).ok());
        let bytes = bytes.unwrap_or_default();
        let (nonce, ciphertext) = bytes.split_at(bytes.len().min(NONCE_LENGTH));
        let opened = open(&self.0, nonce, ciphertext, &bind(owner))?;
        let text = std::str::from_utf8(&opened).map_err(|_| OpenError::NotAuthentic)?;
        Ok(Zeroizing::new(text.to_owned()))
    }
}

fn bind(owner: &str) -> String {
    format!("{CONTEXT}:{owner}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Passphrase;

    #[test]
    fn a_private_key_is_opened_with_its_passphrase_for_its_owner_only() {
        let key = |words: &str, salt: u8| Passphrase::new(words.to_owned()).file_key(&[salt; 16]).unwrap();
        let sealed = key("a", 1).seal("5ec4e7", "p").unwrap();
        assert!(sealed.starts_with(SEALED_PREFIX) && !sealed.contains(&hex::encode("5ec4e7")));
        assert_eq!(key("a", 1).open(&sealed, "p").unwrap().as_str(), "5ec4e7");
        for (key, owner) in [(key("b", 1), "p"), (key("a", 2), "p"), (key("a", 1), "q")] {
            assert_eq!(key.open(&sealed, owner).err(), Some(OpenError::NotAuthentic));
        }
        for text in ["", "5ec4e7", "sealed:", "sealed:zz", "sealed:00", &sealed[..80]] {
            assert!(key("a", 1).open(text, "p").is_err(), "{text}");
        }
    }
}

//! The export of a principal to another device: one passphrase, two independent Argon2id derivations.
//!
//! [`Passphrase::token_hash`] proves to the server that the importer knows the passphrase, [`Passphrase::export_key`]
//! opens the export itself. Each takes about a quarter of a second and 64 MiB on purpose.
//!
//! ```compile_fail
//! let passphrase = konverge_zopp_crypto::export::Passphrase::new("words".to_owned());
//! println!("{passphrase:?}");
//! ```

use argon2::{Algorithm, Argon2, Params, Version};
use zeroize::Zeroizing;

use crate::{
    envelope::{OpenError, SealError, Sealed, open, seal},
    keys::{EntropyError, KEY_LENGTH, random},
};

/// Bytes in each of the two salts.
pub const SALT_LENGTH: usize = 16;

const MEMORY_KIB: u32 = 65_536;
const PASSES: u32 = 3;
const LANES: u32 = 1;

/// The large word list of the EFF (CC BY 3.0, <https://www.eff.org/dice>): 7776 words, one per line.
const WORDS: &str = include_str!("eff_large_wordlist.txt");
/// How many words there are.
const WORD_COUNT: u16 = 7776;
/// Words of a passphrase: 77.5 bits.
const PASSPHRASE_WORDS: usize = 6;

/// The context that binds the export, in place of names.
const BINDING: &str = "zopp-principal-export-v2";

/// The words that protect an export. Wiped on drop, without `Debug`.
pub struct Passphrase(Zeroizing<String>);

/// The key that opens an export. Wiped on drop, without `Debug`.
pub struct ExportKey(Zeroizing<[u8; KEY_LENGTH]>);

/// The derivation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeriveError {
    /// Another number of salt bytes than [`SALT_LENGTH`].
    #[error("salt is {found} bytes long instead of {SALT_LENGTH}")]
    SaltLength {
        /// How many bytes there were.
        found: usize,
    },
    /// The 64 MiB it works in were not to be had, or the passphrase is longer than 4 GiB.
    #[error("argon2id failed: {0}")]
    Argon2(argon2::Error),
}

impl Passphrase {
    /// Takes the words as they are, separated by single spaces.
    pub fn new(words: String) -> Self {
        Self(Zeroizing::new(words))
    }

    /// Six random words.
    pub fn generate() -> Result<Self, EntropyError> {
        // Long enough for the longest words, so that it never grows and leaves no copy behind.
        let mut words = Zeroizing::new(String::with_capacity(PASSPHRASE_WORDS * 10));
        for index in 0..PASSPHRASE_WORDS {
            if index > 0 {
                words.push(' ');
            }
            words.push_str(WORDS.lines().nth(random_word()?.into()).unwrap_or_default());
        }
        Ok(Self(words))
    }

    /// The words, to be shown to the one who exports.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The proof that the server compares, in hexadecimal.
    pub fn token_hash(&self, verification_salt: &[u8]) -> Result<String, DeriveError> {
        self.derive(verification_salt).map(|bytes| hex::encode(bytes.as_slice()))
    }

    /// The key that decrypts the export.
    pub fn export_key(&self, salt: &[u8]) -> Result<ExportKey, DeriveError> {
        self.derive(salt).map(ExportKey)
    }

    fn derive(&self, salt: &[u8]) -> Result<Zeroizing<[u8; KEY_LENGTH]>, DeriveError> {
        if salt.len() != SALT_LENGTH {
            return Err(DeriveError::SaltLength { found: salt.len() });
        }
        let parameters = Params::new(MEMORY_KIB, PASSES, LANES, Some(KEY_LENGTH)).map_err(DeriveError::Argon2)?;
        let mut derived = Zeroizing::new([0; KEY_LENGTH]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters)
            .hash_password_into(self.0.as_bytes(), salt, derived.as_mut_slice())
            .map_err(DeriveError::Argon2)?;
        Ok(derived)
    }
}

/// A salt of its own for each derivation.
pub fn salt() -> Result<[u8; SALT_LENGTH], EntropyError> {
    random()
}

/// The number of a word, each equally likely.
fn random_word() -> Result<u16, EntropyError> {
    loop {
        let number = u16::from_le_bytes(random()?);
        // The largest multiple of the count that fits: what is above it would favour the first words.
        if number < u16::MAX / WORD_COUNT * WORD_COUNT {
            return Ok(number % WORD_COUNT);
        }
    }
}

impl ExportKey {
    /// Encrypts an export.
    pub fn seal(&self, export: &[u8]) -> Result<Sealed, SealError> {
        seal(&self.0, export, BINDING)
    }

    /// Opens what [`ExportKey::seal`] made, from the fields of the server's answer.
    pub fn open(&self, nonce: &[u8], ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        open(&self.0, nonce, ciphertext, BINDING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::seal_with_nonce;

    fn passphrase() -> Passphrase {
        Passphrase::new("correct horse battery staple purple llama".to_owned())
    }

    #[test]
    fn vector_token_hash() {
        assert_eq!(
            passphrase().token_hash(&[0xaa; 16]).unwrap(),
            "22228fc43f2b4f1a57824187c170d95515c9b6e64e4487dce9c0fc87df32bda5"
        );
    }

    #[test]
    fn vector_export() {
        let key = passphrase().export_key(&[0xbb; 16]).unwrap();
        assert_eq!(hex::encode(key.0.as_slice()), "f0eea607542506b3c9af988efc9957ded690374cceff6338a435a851be73c4e3");
        let sealed = seal_with_nonce(&key.0, [5; 24], b"{}", BINDING).unwrap();
        assert_eq!(hex::encode(&sealed.ciphertext), "9665ea126a5ac5f1618f55be11ba4dce63c9");
        assert_eq!(key.open(&sealed.nonce, &sealed.ciphertext).unwrap().as_slice(), b"{}");
        assert_eq!(key.open(&[5; 23], &sealed.ciphertext).err(), Some(OpenError::NonceLength { found: 23 }));
        assert_eq!(key.open(&[6; 24], &sealed.ciphertext).err(), Some(OpenError::NotAuthentic));
    }

    #[test]
    fn passphrases_are_six_words_of_the_list() {
        let list: std::collections::HashSet<_> = WORDS.lines().collect();
        assert_eq!(list.len(), usize::from(WORD_COUNT));
        assert!(list.iter().all(|word| (3..=9).contains(&word.len())));
        let (one, other) = (Passphrase::generate().unwrap(), Passphrase::generate().unwrap());
        assert_ne!(one.expose(), other.expose());
        for words in [one.expose(), other.expose()] {
            assert_eq!(words.split(' ').count(), 6);
            assert!(words.split(' ').all(|word| list.contains(word)), "{words}");
        }
    }

    #[test]
    fn a_salt_of_another_length_is_an_error() {
        assert_eq!(passphrase().token_hash(&[0; 15]).err(), Some(DeriveError::SaltLength { found: 15 }));
        assert_eq!(passphrase().export_key(&[]).err(), Some(DeriveError::SaltLength { found: 0 }));
    }
}

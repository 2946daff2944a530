//! The export of a principal to another device.
//!
//! A person carries a code and a passphrase from one device to the other. The code has two parts: the name under which the server keeps the
//! export, and a [`CodeSecret`] that no device ever sends. The salt of the only Argon2id derivation comes from the code secret, so the server
//! neither chooses nor knows it. HKDF-Expand derives two independent keys: the proof of the passphrase, which the server sees, and the key of
//! the export, which it does not see. The derivation takes about a quarter of a second and 64 MiB on purpose, and the server cannot lower its
//! cost.
//!
//! The published programs send Argon2id of the passphrase and a salt that the server chooses. [`Passphrase::published_proof`] and
//! [`Passphrase::published_key`] are for exports in that format. A lying server learns the key of such an export.
//!
//! ```compile_fail
//! let passphrase = konverge_zopp_crypto::export::Passphrase::new("words".to_owned());
//! println!("{passphrase:?}");
//! ```

use argon2::{Algorithm, Argon2, Params, Version};
use hkdf::Hkdf;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::{
    at_rest::FileKey,
    envelope::{OpenError, SealError, Sealed, open, seal},
    keys::{EntropyError, KEY_LENGTH, random},
};

/// Bytes in each of the two salts of a stored export.
pub const SALT_LENGTH: usize = 16;

const MEMORY_KIB: u32 = 65_536;
const PASSES: u32 = 3;
const LANES: u32 = 1;

/// The characters of a code secret: digits and letters that are not mistaken for each other (Crockford's base 32).
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Characters of a code secret: 80 bits.
const SECRET_LENGTH: usize = 16;
const CHARACTERS_PER_GROUP: usize = 4;
/// The separator between the server's part of a code and the groups of the code secret.
const SEPARATOR: char = '-';

/// The domains of the hashes over a code secret, and of the keys that are expanded from a passphrase.
const SALT_DOMAIN: &str = "konverge.zopp.v2 principal export salt";
const MARK_DOMAIN: &str = "konverge.zopp.v2 principal export mark";
const PROOF_INFO: &[u8] = b"konverge.zopp.v2 principal export verification";
const KEY_INFO: &[u8] = b"konverge.zopp.v2 principal export encryption";
const FILE_SALT_DOMAIN: &str = "konverge.zopp.v2 salt of a file with private keys";
const FILE_INFO: &[u8] = b"konverge.zopp.v2 private keys at rest";

/// The large word list of the EFF (CC BY 3.0, <https://www.eff.org/dice>): 7776 words, one per line.
const WORDS: &str = include_str!("eff_large_wordlist.txt");
/// How many words there are.
const WORD_COUNT: u16 = 7776;
/// Words of a passphrase: 77.5 bits.
const PASSPHRASE_WORDS: usize = 6;

/// The context of an export's envelope, instead of names.
const CONTEXT: &str = "konverge.zopp.v2 principal export";
/// The context in the published format.
const PUBLISHED_CONTEXT: &str = "zopp-principal-export-v2";

/// The words that protect an export. Wiped on drop, without `Debug`.
pub struct Passphrase(Zeroizing<String>);

/// The part of a code that no device sends. Wiped on drop, without `Debug`.
pub struct CodeSecret(Zeroizing<String>);

/// The code that a person carries to the other device.
pub enum ExportCode {
    /// A code of this program.
    Bound {
        /// The name of the export at the server.
        name: String,
        /// The part that only the two devices know.
        secret: CodeSecret,
    },
    /// A code of a published program: the name of the export at the server, and nothing else.
    Published {
        /// The name of the export at the server.
        name: String,
    },
}

/// The text was not the code of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the code of an export ends in {SECRET_LENGTH} letters and digits in groups of {CHARACTERS_PER_GROUP} (example: exp_ab12cd34-k7m2-q9xw-0h3d-7pte)"
)]
pub struct CodeError;

/// The two keys of an export. The server sees the proof, which tells it nothing about the key.
pub struct ExportKeys {
    /// The proof that its sender knows the passphrase and the code, in hexadecimal.
    pub proof: String,
    /// The key that opens the export.
    pub key: ExportKey,
}

/// The key that opens an export. Wiped on drop, without `Debug`.
pub struct ExportKey {
    bytes: Zeroizing<[u8; KEY_LENGTH]>,
    context: &'static str,
}

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
    /// HKDF refused the length of a key. The lengths are constants, so this does not happen.
    #[error("hkdf failed")]
    Expand,
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

    /// Derives the keys of an export with this code secret.
    ///
    /// # Errors
    /// [`DeriveError::Argon2`].
    pub fn export_keys(&self, secret: &CodeSecret) -> Result<ExportKeys, DeriveError> {
        // 32 bytes: the published programs refuse a salt of this length, so no server can make one of them derive the same keys.
        let master = self.derive(secret.hash(SALT_DOMAIN).as_slice())?;
        let proof = hex::encode(expand(&master, PROOF_INFO)?.as_slice());
        Ok(ExportKeys { proof, key: ExportKey { bytes: expand(&master, KEY_INFO)?, context: CONTEXT } })
    }

    /// Derives the key of a file with private keys.
    ///
    /// # Errors
    /// [`DeriveError::Argon2`].
    pub fn file_key(&self, salt: &[u8; SALT_LENGTH]) -> Result<FileKey, DeriveError> {
        // 32 bytes here, too, so no server can get this key from an import with the same passphrase.
        let master = self.derive(domain_hash(FILE_SALT_DOMAIN, salt).as_slice())?;
        Ok(FileKey::new(expand(&master, FILE_INFO)?))
    }

    /// Derives the proof in the published format, in hexadecimal. A server that gives the salt of the key learns the key.
    ///
    /// # Errors
    /// [`DeriveError::SaltLength`] if the salt does not have [`SALT_LENGTH`] bytes, [`DeriveError::Argon2`].
    pub fn published_proof(&self, verification_salt: &[u8]) -> Result<String, DeriveError> {
        self.derive_published(verification_salt).map(|bytes| hex::encode(bytes.as_slice()))
    }

    /// Derives the key of an export in the published format.
    ///
    /// # Errors
    /// [`DeriveError::SaltLength`] if the salt does not have [`SALT_LENGTH`] bytes, [`DeriveError::Argon2`].
    pub fn published_key(&self, salt: &[u8]) -> Result<ExportKey, DeriveError> {
        Ok(ExportKey { bytes: self.derive_published(salt)?, context: PUBLISHED_CONTEXT })
    }

    fn derive_published(&self, salt: &[u8]) -> Result<Zeroizing<[u8; KEY_LENGTH]>, DeriveError> {
        if salt.len() != SALT_LENGTH {
            return Err(DeriveError::SaltLength { found: salt.len() });
        }
        self.derive(salt)
    }

    fn derive(&self, salt: &[u8]) -> Result<Zeroizing<[u8; KEY_LENGTH]>, DeriveError> {
        let parameters = Params::new(MEMORY_KIB, PASSES, LANES, Some(KEY_LENGTH)).map_err(DeriveError::Argon2)?;
        let mut derived = Zeroizing::new([0; KEY_LENGTH]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters)
            .hash_password_into(self.0.as_bytes(), salt, derived.as_mut_slice())
            .map_err(DeriveError::Argon2)?;
        Ok(derived)
    }
}

impl CodeSecret {
    /// Draws a new code secret.
    ///
    /// # Errors
    /// [`EntropyError`].
    pub fn generate() -> Result<Self, EntropyError> {
        let random = Zeroizing::new(random::<SECRET_LENGTH>()?);
        // 32 divides 256, so each character is equally likely.
        let mut text = Zeroizing::new(String::with_capacity(SECRET_LENGTH));
        text.extend(random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])));
        Ok(Self(text))
    }

    /// Returns the code for the export that the server keeps under this name.
    pub fn to_code(&self, name: &str) -> Zeroizing<String> {
        let groups = SECRET_LENGTH / CHARACTERS_PER_GROUP;
        let mut code = Zeroizing::new(String::with_capacity(name.len() + SECRET_LENGTH + groups));
        code.push_str(name);
        for (index, character) in self.0.chars().enumerate() {
            if index % CHARACTERS_PER_GROUP == 0 {
                code.push(SEPARATOR);
            }
            code.push(character);
        }
        code
    }

    /// Returns the two values that are stored instead of the salts. They reveal nothing about the salt, and prove that an export belongs to
    /// this code secret.
    pub fn marks(&self) -> ([u8; SALT_LENGTH], [u8; SALT_LENGTH]) {
        let (mut verification, mut encryption) = ([0; SALT_LENGTH], [0; SALT_LENGTH]);
        let hash = self.hash(MARK_DOMAIN);
        let (first, second) = hash.split_at(SALT_LENGTH);
        verification.copy_from_slice(first);
        encryption.copy_from_slice(second);
        (verification, encryption)
    }

    fn hash(&self, domain: &str) -> Zeroizing<[u8; 2 * SALT_LENGTH]> {
        domain_hash(domain, self.0.as_bytes())
    }
}

impl ExportCode {
    /// Parses a code as a person types it. Dashes within the code secret and the case of its letters do not matter.
    ///
    /// # Errors
    /// [`CodeError`] if there is a dash, and no code secret behind it.
    pub fn parse(text: &str) -> Result<Self, CodeError> {
        let text = text.trim();
        let Some((name, rest)) = text.split_once(SEPARATOR) else {
            return Ok(Self::Published { name: text.to_owned() });
        };
        let mut secret = Zeroizing::new(String::with_capacity(SECRET_LENGTH));
        for character in rest.chars().filter(|character| *character != SEPARATOR) {
            let character = match character.to_ascii_lowercase() {
                'o' => '0',
                'i' | 'l' => '1',
                other => other,
            };
            let is_known = u8::try_from(character).is_ok_and(|byte| ALPHABET.contains(&byte));
            if !is_known || secret.len() == SECRET_LENGTH {
                return Err(CodeError);
            }
            secret.push(character);
        }
        if name.is_empty() || secret.len() != SECRET_LENGTH {
            return Err(CodeError);
        }
        Ok(Self::Bound { name: name.to_owned(), secret: CodeSecret(secret) })
    }
}

/// Returns the hash in a wiped array: that of a code secret is a salt which no device may send.
fn domain_hash(domain: &str, bytes: &[u8]) -> Zeroizing<[u8; 2 * SALT_LENGTH]> {
    let mut hash = Sha256::new();
    hash.update((domain.len() as u64).to_le_bytes());
    hash.update(domain);
    hash.update(bytes);
    Zeroizing::new(hash.finalize().into())
}

fn expand(master: &[u8; KEY_LENGTH], info: &[u8]) -> Result<Zeroizing<[u8; KEY_LENGTH]>, DeriveError> {
    let mut key = Zeroizing::new([0; KEY_LENGTH]);
    let keys = Hkdf::<Sha256>::from_prk(master).map_err(|_| DeriveError::Expand)?;
    keys.expand(info, key.as_mut_slice()).map_err(|_| DeriveError::Expand)?;
    Ok(key)
}

/// Draws a salt, for an export in the published format or for a file with private keys.
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
        seal(&self.bytes, export, self.context)
    }

    /// Opens what [`ExportKey::seal`] made, from the fields of the server's answer.
    pub fn open(&self, nonce: &[u8], ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        open(&self.bytes, nonce, ciphertext, self.context)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::envelope::seal_with_nonce;

    fn passphrase() -> Passphrase {
        Passphrase::new("correct horse battery staple purple llama".to_owned())
    }

    #[test]
    fn vector_published_proof() {
        assert_eq!(
            passphrase().published_proof(&[0xaa; 16]).unwrap(),
            "22228fc43f2b4f1a57824187c170d95515c9b6e64e4487dce9c0fc87df32bda5"
        );
    }

    #[test]
    fn vector_published_export() {
        let key = passphrase().published_key(&[0xbb; 16]).unwrap();
        assert_eq!(
            hex::encode(key.bytes.as_slice()),
            "f0eea607542506b3c9af988efc9957ded690374cceff6338a435a851be73c4e3"
        );
        let sealed = seal_with_nonce(&key.bytes, [5; 24], b"{}", PUBLISHED_CONTEXT).unwrap();
        assert_eq!(hex::encode(&sealed.ciphertext), "9665ea126a5ac5f1618f55be11ba4dce63c9");
        assert_eq!(key.open(&sealed.nonce, &sealed.ciphertext).unwrap().as_slice(), b"{}");
        assert_eq!(key.open(&[5; 23], &sealed.ciphertext).err(), Some(OpenError::NonceLength { found: 23 }));
        assert_eq!(key.open(&[6; 24], &sealed.ciphertext).err(), Some(OpenError::NotAuthentic));
    }

    fn secret(text: &str) -> CodeSecret {
        let Ok(ExportCode::Bound { secret, .. }) = ExportCode::parse(&format!("exp_ab12cd34-{text}")) else {
            panic!("{text} is not a code secret");
        };
        secret
    }

    /// The values that a server sees and chooses reveal neither the key nor its derivation.
    #[test]
    fn proof_marks_and_key_are_independent_of_each_other() {
        let (secret, words) = (secret("k7m2-q9xw-0h3d-7pte"), passphrase());
        let keys = words.export_keys(&secret).unwrap();
        let key = hex::encode(keys.key.bytes.as_slice());
        let (verification, encryption) = secret.marks();
        assert_ne!(verification, encryption, "published programs would derive one key from equal salts");
        let seen = [
            keys.proof.clone(),
            words.published_proof(&verification).unwrap(),
            words.published_proof(&encryption).unwrap(),
            hex::encode(words.derive(secret.hash(MARK_DOMAIN).as_slice()).unwrap().as_slice()),
        ];
        assert!(!seen.contains(&key));
        for known in &seen {
            let bytes = hex::decode(known).unwrap();
            let again = Hkdf::<Sha256>::from_prk(&bytes).unwrap();
            let mut expanded = [0; KEY_LENGTH];
            again.expand(KEY_INFO, &mut expanded).unwrap();
            assert_ne!(hex::encode(expanded), key, "{known} leads to the key");
        }
        // Published programs refuse the salt of 32 bytes.
        let salt = secret.hash(SALT_DOMAIN);
        assert_eq!(words.published_proof(salt.as_slice()).err(), Some(DeriveError::SaltLength { found: 32 }));
        assert_ne!(
            words.derive(salt.as_slice()).unwrap().as_slice(),
            keys.key.bytes.as_slice(),
            "expanded, and not taken as it is"
        );
    }

    /// The format of other versions of this program.
    #[test]
    fn vector_export() {
        let keys = passphrase().export_keys(&secret("k7m2-q9xw-0h3d-7pte")).unwrap();
        let sealed = seal_with_nonce(&keys.key.bytes, [5; 24], b"{}", CONTEXT).unwrap();
        assert_eq!(keys.key.open(&sealed.nonce, &sealed.ciphertext).unwrap().as_slice(), b"{}");
        assert_eq!(
            (keys.proof.as_str(), hex::encode(&sealed.ciphertext).as_str()),
            (
                "64a0e3960287bd2e7a0470b0cacbe4802c9daba9bdd4dea13d96523d0475baa9",
                "a4c1a983d4b4133a0c828edd66f17526ef1c"
            )
        );
    }

    #[test]
    fn each_part_of_code_and_passphrase_counts() {
        let keys = passphrase().export_keys(&secret("k7m2-q9xw-0h3d-7pte")).unwrap();
        let sealed = keys.key.seal(b"{}").unwrap();
        let others = [
            passphrase().export_keys(&secret("k7m2-q9xw-0h3d-7ptf")).unwrap(),
            Passphrase::new("correct horse".to_owned()).export_keys(&secret("k7m2-q9xw-0h3d-7pte")).unwrap(),
        ];
        for other in others {
            assert_ne!(other.proof, keys.proof);
            assert_eq!(other.key.open(&sealed.nonce, &sealed.ciphertext).err(), Some(OpenError::NotAuthentic));
        }
        // Nor does the context of the published format open it.
        let published = ExportKey { bytes: keys.key.bytes.clone(), context: PUBLISHED_CONTEXT };
        assert_eq!(published.open(&sealed.nonce, &sealed.ciphertext).err(), Some(OpenError::NotAuthentic));
    }

    #[test]
    fn a_code_is_read_as_people_type_it() {
        let drawn = CodeSecret::generate().unwrap();
        let code = drawn.to_code("exp_ab12cd34");
        assert_eq!(code.len(), "exp_ab12cd34-k7m2-q9xw-0h3d-7pte".len());
        for text in [
            code.to_string(),
            format!(" {}\n", code.as_str()),
            code.replace("exp_ab12cd34", "exp_AB12CD34").to_uppercase(),
        ] {
            let Ok(ExportCode::Bound { name, secret }) = ExportCode::parse(&text) else { panic!("{text}") };
            assert!(name.eq_ignore_ascii_case("exp_ab12cd34"));
            assert_eq!(secret.0, drawn.0);
        }
        assert_eq!(secret("k7m2q9xw0h3d7pte").0, secret("K7M2-Q9XW-OH3D-7PTE").0);
        assert!(
            matches!(ExportCode::parse("exp_ab12cd34"), Ok(ExportCode::Published { name }) if name == "exp_ab12cd34")
        );
        for bad in [
            "exp_ab12cd34-",
            "exp_ab12cd34-k7m2",
            "-k7m2-q9xw-0h3d-7pte",
            "e-k7m2-q9xw-0h3d-7pteu",
            "e-k7m2-q9xw-0h3d-7pté",
        ] {
            assert!(ExportCode::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer_not_a_panic(text in "(exp_[a-z0-9]{8}-)?.*") {
            let _ = ExportCode::parse(&text);
        }
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
        assert_eq!(passphrase().published_proof(&[0; 15]).err(), Some(DeriveError::SaltLength { found: 15 }));
        assert_eq!(passphrase().published_key(&[]).err(), Some(DeriveError::SaltLength { found: 0 }));
    }
}

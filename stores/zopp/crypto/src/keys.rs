//! Key types: private ones cannot be printed, copied or serialised and are wiped on drop; public ones are plain.
//!
//! ```compile_fail
//! let seed = konverge_zopp_crypto::SigningSeed::generate().unwrap();
//! println!("{seed:?}");
//! ```
//! ```compile_fail
//! let kek = konverge_zopp_crypto::Kek::generate().unwrap();
//! let copy = kek.clone();
//! ```
//! ```compile_fail
//! fn wants_serialize<T: serde::Serialize>(_: &T) {}
//! wants_serialize(&konverge_zopp_crypto::Dek::generate().unwrap());
//! ```
//! ```compile_fail
//! let private = konverge_zopp_crypto::X25519Private::generate().unwrap();
//! println!("{private}");
//! ```
//! ```compile_fail
//! fn wants_debug<T: std::fmt::Debug>(_: T) {}
//! wants_debug(konverge_zopp_crypto::InviteSecret::generate().unwrap());
//! ```

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::export::DeriveError;

/// Bytes in each private key, public key, KEK, DEK and invite secret.
pub const KEY_LENGTH: usize = 32;

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no random bytes")]
pub struct EntropyError(#[from] getrandom::Error);

/// Text or bytes are not a key. Says what is wrong with their form and never quotes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A character outside `0-9a-fA-F`, or an odd number of them.
    #[error("not hexadecimal")]
    NotHex,
    /// Another number of bytes than [`KEY_LENGTH`].
    #[error("{found} bytes long instead of {KEY_LENGTH}")]
    Length {
        /// How many bytes there were.
        found: usize,
    },
    /// 32 bytes that are no point on the Ed25519 curve.
    #[error("not a point on the Ed25519 curve")]
    NotAPoint,
    /// A public key of low order, for which a signature or a shared secret proves and hides nothing.
    #[error("a weak public key (of low order)")]
    Weak,
    /// A second spelling of a public key, which would let two principals share one.
    #[error("not the canonical form of a public key")]
    NotCanonical,
}

/// 32 secret bytes at one fixed heap address, so that moving the owner leaves no copy behind.
type SecretBytes = Box<Zeroizing<[u8; KEY_LENGTH]>>;

pub(crate) fn random<const N: usize>() -> Result<[u8; N], EntropyError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

fn secret_bytes(bytes: &[u8]) -> Result<SecretBytes, KeyError> {
    let mut secret = SecretBytes::default();
    if bytes.len() != KEY_LENGTH {
        return Err(KeyError::Length { found: bytes.len() });
    }
    secret.copy_from_slice(bytes);
    Ok(secret)
}

fn secret_bytes_from_hex(text: &str) -> Result<SecretBytes, KeyError> {
    let mut secret = SecretBytes::default();
    match hex::decode_to_slice(text, secret.as_mut_slice()) {
        Ok(()) => Ok(secret),
        Err(hex::FromHexError::InvalidStringLength) if text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Err(KeyError::Length { found: text.len() / 2 })
        }
        Err(_) => Err(KeyError::NotHex),
    }
}

macro_rules! secret_key {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        pub struct $name(SecretBytes);

        impl $name {
            /// A new one from the operating system's random bytes.
            pub fn generate() -> Result<Self, EntropyError> {
                let mut secret = SecretBytes::default();
                getrandom::fill(secret.as_mut_slice())?;
                Ok(Self(secret))
            }

            /// Takes exactly [`KEY_LENGTH`] bytes; any other length is an error.
            pub fn from_slice(bytes: &[u8]) -> Result<Self, KeyError> {
                secret_bytes(bytes).map(Self)
            }

            /// Reads the form used in configuration files: 64 hexadecimal digits of any case.
            pub fn from_hex(text: &str) -> Result<Self, KeyError> {
                secret_bytes_from_hex(text).map(Self)
            }

            /// Lower-case hexadecimal, in memory that is wiped on drop.
            pub fn to_hex(&self) -> Zeroizing<String> {
                Zeroizing::new(hex::encode(self.expose()))
            }

            /// The raw bytes, for cryptography only.
            pub fn expose(&self) -> &[u8; KEY_LENGTH] {
                &self.0
            }
        }
    };
}

secret_key! {
    /// The Ed25519 seed by which a principal signs its requests.
    SigningSeed
}
secret_key! {
    /// The X25519 scalar (unclamped; clamped at use) by which a principal opens the KEKs wrapped for it.
    X25519Private
}
secret_key! {
    /// Key encryption key: one per workspace, opens the workspace's DEKs.
    Kek
}
secret_key! {
    /// Data encryption key: one per environment, opens the environment's values.
    Dek
}
secret_key! {
    /// The secret in a workspace invite code. The holder can decrypt the workspace's KEK.
    InviteSecret
}

impl InviteSecret {
    pub(crate) fn from_bytes(bytes: &[u8; KEY_LENGTH]) -> Self {
        let mut secret = SecretBytes::default();
        secret.copy_from_slice(bytes);
        Self(secret)
    }
}

impl SigningSeed {
    /// The public half, by which the server verifies.
    pub fn public(&self) -> SigningPublic {
        SigningPublic(ed25519_dalek::SigningKey::from_bytes(self.expose()).verifying_key())
    }

    /// Derives a key for this purpose only, by HKDF-SHA256. The key reveals nothing about the seed.
    ///
    /// # Errors
    /// [`DeriveError::Expand`], which does not happen.
    pub fn derive(&self, purpose: &str) -> Result<Zeroizing<[u8; KEY_LENGTH]>, DeriveError> {
        let mut key = Zeroizing::new([0; KEY_LENGTH]);
        let seed = Hkdf::<Sha256>::new(None, self.expose());
        seed.expand(purpose.as_bytes(), key.as_mut_slice()).map_err(|_| DeriveError::Expand)?;
        Ok(key)
    }
}

impl X25519Private {
    /// The public half, for which others wrap KEKs.
    pub fn public(&self) -> X25519Public {
        let private = x25519_dalek::StaticSecret::from(*self.expose());
        X25519Public(x25519_dalek::PublicKey::from(&private).to_bytes())
    }
}

/// The public half of a [`SigningSeed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SigningPublic(pub(crate) ed25519_dalek::VerifyingKey);

impl SigningPublic {
    /// Takes [`KEY_LENGTH`] bytes that are a point on the curve.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, KeyError> {
        let bytes: &[u8; KEY_LENGTH] = bytes.try_into().map_err(|_| KeyError::Length { found: bytes.len() })?;
        ed25519_dalek::VerifyingKey::from_bytes(bytes).map(Self).map_err(|_| KeyError::NotAPoint)
    }

    /// The form that goes over the wire.
    pub fn to_bytes(&self) -> [u8; KEY_LENGTH] {
        self.0.to_bytes()
    }

    /// Refuses a key of low order: signatures by it can be made by anybody.
    pub fn check_strength(&self) -> Result<(), KeyError> {
        if self.0.is_weak() { Err(KeyError::Weak) } else { Ok(()) }
    }
}

/// The public half of an [`X25519Private`]. Any 32 bytes are one; weak ones are refused where they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct X25519Public(pub(crate) [u8; KEY_LENGTH]);

impl X25519Public {
    /// Takes [`KEY_LENGTH`] bytes.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, KeyError> {
        bytes.try_into().map(Self).map_err(|_| KeyError::Length { found: bytes.len() })
    }

    /// The form that goes over the wire.
    pub fn to_bytes(&self) -> [u8; KEY_LENGTH] {
        self.0
    }

    /// Refuses a key of low order, with which everybody shares one secret, and a spelling that no key pair gives.
    pub fn check_strength(&self) -> Result<(), KeyError> {
        // 2^255 - 19, little-endian: what is not below it is also spelt in another way.
        const PRIME_HEAD: u8 = 0xed;
        let [head, middle @ .., tail] = &self.0;
        if *tail > 0x7f || (*tail == 0x7f && middle.iter().all(|byte| *byte == 0xff) && *head >= PRIME_HEAD) {
            return Err(KeyError::NotCanonical);
        }
        // Any private key shows it: a point of low order times the cofactor, which each one holds, is nothing.
        let any = x25519_dalek::StaticSecret::from([1; KEY_LENGTH]);
        let shared = any.diffie_hellman(&x25519_dalek::PublicKey::from(self.0));
        if shared.was_contributory() { Ok(()) } else { Err(KeyError::Weak) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_any_case_is_read() {
        let seed = SigningSeed::generate().unwrap();
        let text = seed.to_hex();
        assert_eq!(text.len(), 64);
        assert_eq!(SigningSeed::from_hex(&text).unwrap().expose(), seed.expose());
        assert_eq!(SigningSeed::from_hex(&text.to_uppercase()).unwrap().expose(), seed.expose());
    }

    #[test]
    fn bad_text_is_told_apart() {
        let error = |text: &str| Kek::from_hex(text).err();
        assert_eq!(error(""), Some(KeyError::Length { found: 0 }));
        assert_eq!(error(&"ab".repeat(31)), Some(KeyError::Length { found: 31 }));
        assert_eq!(error(&"ab".repeat(33)), Some(KeyError::Length { found: 33 }));
        assert_eq!(error("abc"), Some(KeyError::NotHex));
        assert_eq!(error(&"zz".repeat(32)), Some(KeyError::NotHex));
        assert_eq!(error(&"é".repeat(32)), Some(KeyError::NotHex));
    }

    #[test]
    fn public_halves_match_the_vectors() {
        let seed: Vec<u8> = (0..32).collect();
        assert_eq!(
            hex::encode(SigningSeed::from_slice(&seed).unwrap().public().to_bytes()),
            "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
        );
        assert_eq!(
            hex::encode(X25519Private::from_slice(&[0x11; 32]).unwrap().public().to_bytes()),
            "7b4e909bbe7ffe44c465a220037d608ee35897d31ef972f07f74892cb0f73f13"
        );
        assert_eq!(
            hex::encode(X25519Private::from_slice(&[0x22; 32]).unwrap().public().to_bytes()),
            "0faa684ed28867b97f4a6a2dee5df8ce974e76b7018e3f22a1c4cf2678570f20"
        );
    }

    #[test]
    fn weak_and_respelt_public_keys_are_told() {
        let key = |text: &str| X25519Public::from_slice(&hex::decode(text).unwrap()).unwrap().check_strength();
        for weak in [
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0100000000000000000000000000000000000000000000000000000000000000",
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        ] {
            assert_eq!(key(weak), Err(KeyError::Weak), "{weak}");
        }
        for respelt in [
            "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "7b4e909bbe7ffe44c465a220037d608ee35897d31ef972f07f74892cb0f73f93",
        ] {
            assert_eq!(key(respelt), Err(KeyError::NotCanonical), "{respelt}");
        }
        assert_eq!(key("7b4e909bbe7ffe44c465a220037d608ee35897d31ef972f07f74892cb0f73f13"), Ok(()));
        let signing = |text: &str| SigningPublic::from_slice(&hex::decode(text).unwrap()).unwrap().check_strength();
        for weak in [
            "0100000000000000000000000000000000000000000000000000000000000000",
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        ] {
            assert_eq!(signing(weak), Err(KeyError::Weak), "{weak}");
        }
        assert_eq!(SigningSeed::generate().unwrap().public().check_strength(), Ok(()));
    }

    #[test]
    fn a_public_key_has_32_bytes_on_the_curve() {
        assert_eq!(X25519Public::from_slice(&[1; 31]), Err(KeyError::Length { found: 31 }));
        assert_eq!(SigningPublic::from_slice(&[]).err(), Some(KeyError::Length { found: 0 }));
        let off_curve =
            (0..=u8::MAX).find(|first| SigningPublic::from_slice(&[&[*first], [0; 31].as_slice()].concat()).is_err());
        assert!(off_curve.is_some());
    }
}

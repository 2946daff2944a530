//! Workspace invite codes: the code carries the secret that opens the workspace's KEK, the server knows its hash only.
//!
//! ```
//! use konverge_zopp_crypto::InviteSecret;
//!
//! let secret = InviteSecret::generate()?;
//! let code = secret.to_code();
//! let received = InviteSecret::from_code(&code)?;
//! assert_eq!(received.token(), secret.token());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::{
    envelope::{OpenError, SealError, Sealed, open, seal},
    keys::{EntropyError, InviteSecret, KEY_LENGTH, Kek, KeyError, random},
};

/// The random bytes at the beginning of a secret that names its workspace: 160 bits.
const RANDOM_LENGTH: usize = 20;
/// The bytes after the random ones, which mark that the secret names its workspace. The rest of the secret is the hash of the name.
const MARK_LENGTH: usize = 4;
const MARK_DOMAIN: &str = "konverge.zopp.v2 invite names its workspace";
const NAME_DOMAIN: &str = "konverge.zopp.v2 name of the invite's workspace";

/// The prefix of a workspace invite code; a server invite is bare hexadecimal.
pub const CODE_PREFIX: &str = "inv_";

/// Text is not a workspace invite code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// It does not begin with [`CODE_PREFIX`].
    #[error("invite code does not begin with {CODE_PREFIX:?}")]
    Prefix,
    /// The part after the prefix is not a valid secret.
    #[error("invite code after {CODE_PREFIX:?} is {0}")]
    Secret(KeyError),
}

/// The result of the comparison of a name with the workspace that an invite code names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameInCode {
    /// The code names no workspace: a published program made it.
    None,
    /// The code names this workspace.
    Same,
    /// The code names another workspace.
    Other,
}

impl InviteSecret {
    /// Draws the secret of an invite to this workspace. Its code names the workspace, so a server cannot give the joiner another name.
    /// Published programs accept the code like any other.
    ///
    /// # Errors
    /// [`EntropyError`].
    pub fn for_workspace(workspace_id: &str, name: &str) -> Result<Self, EntropyError> {
        let mut secret = Zeroizing::new([0; KEY_LENGTH]);
        let random = Zeroizing::new(random::<RANDOM_LENGTH>()?);
        let (head, rest) = secret.split_at_mut(RANDOM_LENGTH);
        head.copy_from_slice(random.as_slice());
        let (mark, hash) = rest.split_at_mut(MARK_LENGTH);
        fill(mark, MARK_DOMAIN, &[head]);
        fill(hash, NAME_DOMAIN, &[head, workspace_id.as_bytes(), name.as_bytes()]);
        Ok(Self::from_bytes(&secret))
    }

    /// Returns `NameInCode::Same` if the code names this workspace.
    pub fn name_in_code(&self, workspace_id: &str, name: &str) -> NameInCode {
        let (head, rest) = self.expose().split_at(RANDOM_LENGTH);
        let (mark, hash) = rest.split_at(MARK_LENGTH);
        let (mut of_mark, mut of_name) = ([0; MARK_LENGTH], [0; KEY_LENGTH - RANDOM_LENGTH - MARK_LENGTH]);
        fill(&mut of_mark, MARK_DOMAIN, &[head]);
        fill(&mut of_name, NAME_DOMAIN, &[head, workspace_id.as_bytes(), name.as_bytes()]);
        match (of_mark == mark, of_name == hash) {
            (false, _) => NameInCode::None,
            (true, true) => NameInCode::Same,
            (true, false) => NameInCode::Other,
        }
    }

    /// The code that is handed to the person invited: [`CODE_PREFIX`] and 64 hexadecimal digits.
    pub fn to_code(&self) -> Zeroizing<String> {
        let secret = self.to_hex();
        let mut code = Zeroizing::new(String::with_capacity(CODE_PREFIX.len() + secret.len()));
        code.push_str(CODE_PREFIX);
        code.push_str(&secret);
        code
    }

    /// Reads what [`InviteSecret::to_code`] gave.
    pub fn from_code(code: &str) -> Result<Self, CodeError> {
        let secret = code.strip_prefix(CODE_PREFIX).ok_or(CodeError::Prefix)?;
        Self::from_hex(secret).map_err(CodeError::Secret)
    }

    /// The invite's name at the server: the secret's SHA-256 in hexadecimal.
    pub fn token(&self) -> String {
        hex::encode(Sha256::digest(self.expose()))
    }

    /// Encrypts the KEK for the receiver of the code. `workspace_id` is the first workspace of the invite.
    pub fn encrypt_kek(&self, kek: &Kek, workspace_id: &str) -> Result<Sealed, SealError> {
        seal(self.expose(), kek.expose(), &bind(workspace_id))
    }

    /// Opens what [`InviteSecret::encrypt_kek`] made, from the fields of the server's answer.
    pub fn decrypt_kek(&self, nonce: &[u8], ciphertext: &[u8], workspace_id: &str) -> Result<Kek, OpenError> {
        let opened = open(self.expose(), nonce, ciphertext, &bind(workspace_id))?;
        Kek::from_slice(&opened).map_err(OpenError::WrappedKey)
    }
}

/// Fills `part` with the first bytes of a hash over the parts, each with its length.
fn fill(part: &mut [u8], domain: &str, parts: &[&[u8]]) {
    let mut hash = Sha256::new();
    for one in [domain.as_bytes()].iter().chain(parts) {
        hash.update((one.len() as u64).to_le_bytes());
        hash.update(one);
    }
    let length = part.len();
    part.copy_from_slice(&hash.finalize()[..length]);
}

fn bind(workspace_id: &str) -> String {
    format!("invite:workspace:{workspace_id}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::envelope::seal_with_nonce;

    const WORKSPACE_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn vector_invite() {
        let secret = InviteSecret::from_slice(&[0x55; 32]).unwrap();
        let kek = Kek::from_slice(&[0x33; 32]).unwrap();
        assert_eq!(secret.token(), "84126d0dd850199be29021aadbaee68cb9199047b1cb7ec9894ddb1e3562783c");
        let sealed = seal_with_nonce(secret.expose(), [4; 24], kek.expose(), &bind(WORKSPACE_ID)).unwrap();
        assert_eq!(
            hex::encode(&sealed.ciphertext),
            "68534df644045c802eb767050b46259293f0e46749000dd17c31bcf9b38db4f4d0f1167e340a3d3013d802d108c201e0"
        );
        let opened = secret.decrypt_kek(&sealed.nonce, &sealed.ciphertext, WORKSPACE_ID).unwrap();
        assert_eq!(opened.expose(), kek.expose());
    }

    #[test]
    fn a_code_names_what_is_wrong_with_it() {
        let error = |code: &str| InviteSecret::from_code(code).err();
        assert_eq!(error(&"55".repeat(32)), Some(CodeError::Prefix));
        assert_eq!(error("inv_55"), Some(CodeError::Secret(KeyError::Length { found: 1 })));
        assert_eq!(error("inv_xyz"), Some(CodeError::Secret(KeyError::NotHex)));
        assert_eq!(error(&format!("inv_{}", "55".repeat(32))), None);
    }

    #[test]
    fn a_code_names_its_workspace() {
        let secret = InviteSecret::for_workspace(WORKSPACE_ID, "acme").unwrap();
        let read = InviteSecret::from_code(&secret.to_code()).unwrap();
        assert_eq!(read.name_in_code(WORKSPACE_ID, "acme"), NameInCode::Same);
        for (id, name) in [(WORKSPACE_ID, "acme2"), (WORKSPACE_ID, ""), ("another", "acme")] {
            assert_eq!(read.name_in_code(id, name), NameInCode::Other, "{id} {name}");
        }
        let stock = InviteSecret::generate().unwrap();
        assert_eq!(stock.name_in_code(WORKSPACE_ID, "acme"), NameInCode::None);
        let again = InviteSecret::for_workspace(WORKSPACE_ID, "acme").unwrap();
        assert_ne!(again.token(), secret.token());
    }

    #[test]
    fn the_code_opens_its_own_workspace_only() {
        let (secret, kek) = (InviteSecret::generate().unwrap(), Kek::generate().unwrap());
        let sealed = secret.encrypt_kek(&kek, WORKSPACE_ID).unwrap();
        let open = |secret: &InviteSecret, id: &str| secret.decrypt_kek(&sealed.nonce, &sealed.ciphertext, id).err();
        assert_eq!(open(&secret, WORKSPACE_ID), None);
        assert_eq!(open(&secret, "another"), Some(OpenError::NotAuthentic));
        assert_eq!(open(&InviteSecret::generate().unwrap(), WORKSPACE_ID), Some(OpenError::NotAuthentic));
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer_not_a_panic(code in "(inv_)?.*") {
            let _ = InviteSecret::from_code(&code);
        }
    }
}

//! `~/.zopp/config.json`: the principals of this device with their private keys.
//!
//! Two generations of programs read and write this file. It is read in either shape and written as the union of both, so
//! that either can read it; keys of later programs are kept. Writing replaces the file in one step: a reader sees the
//! old content or the new, never a part. A program that changes it holds its [`lock`](lock()) from reading to writing, so that two of them
//! lose nothing of each other's. Stock programs do not know the lock.
//!
//! ```text
//! {"principals": [{"id", "name", "user_id", "email", "private_key", "public_key",
//!                  "x25519_private_key", "x25519_public_key"}],
//!  "current_principal": "…", "user_id": "…", "email": "…",
//!  "servers": {"https://…": {"generation": "v2", "client_certificate": {"certificate": "<path>", "key": "<path>"},
//!                              "workspaces": {"acme": "<fingerprint>"}, "principals": {"<id>": "<fingerprint>"},
//!                              "accepted": {"<id>": {"email": "…", "exchange_key": "<hex>"}},
//!                              "revoked": {"<id>": {"workspaces": ["acme"]}}}}}
//! ```
//! With `"key_protection": {"salt": "<hex>"}`, private keys are encrypted texts that begin with `sealed:`. Only `zopp` reads such a file.
//!
//! `user_id` and `email` at the top repeat those of the current principal, for the first generation, and are empty for a service principal.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use konverge_zopp_crypto::{
    OpenError, SealError,
    at_rest::{FileKey, SEALED_PREFIX},
    export::SALT_LENGTH,
};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::{file_owner::User, server_record::ServerRecord};

mod lock;
mod read;
mod write;

pub use lock::{Lock, lock};
pub use write::save;

/// The principals of this device.
#[derive(Default)]
pub struct ConfigFile {
    /// In the order of the file; names are unique in it.
    pub principals: Vec<Principal>,
    /// Name of the principal that is used; without it, the first.
    pub current_principal: Option<String>,
    /// The pins of servers, by address in the form of [`crate::config::canonical_address`].
    pub servers: BTreeMap<String, ServerRecord>,
    /// The encryption of the private keys; `None` if they are not encrypted.
    pub protection: Option<KeyProtection>,
    /// Top-level keys of other programs.
    pub other: Map<String, Value>,
}

/// The encryption of the private keys in a file. Programs other than `zopp` cannot read such a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyProtection {
    /// The salt of the file's key.
    pub salt: [u8; SALT_LENGTH],
}

/// One principal. Keys are strings here, so that a malformed one does not make the others unusable. In a protected file, private keys are
/// encrypted until [`ConfigFile::open_keys`].
#[derive(Clone)]
pub struct Principal {
    /// UUID at the server.
    pub id: String,
    /// Local name, unique in the file.
    pub name: String,
    /// `None` for a service principal.
    pub user_id: Option<String>,
    /// `None` for a service principal.
    pub email: Option<String>,
    /// Ed25519 seed in hexadecimal.
    pub private_key: Zeroizing<String>,
    /// Its public half in hexadecimal.
    pub public_key: String,
    /// X25519 scalar in hexadecimal; missing in principals of the first generation.
    pub x25519_private_key: Option<Zeroizing<String>>,
    /// Its public half in hexadecimal.
    pub x25519_public_key: Option<String>,
    /// Keys of other programs.
    pub other: Map<String, Value>,
}

/// The file cannot be used. Tells the place and never quotes the content, which may be a key.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no home directory to look in.
    #[error("no home directory is known: set HOME, or name the credentials file")]
    NoHome,
    /// It does not exist.
    #[error("{} does not exist; run \"zopp join\" first, or name another credentials file", file.display())]
    Missing {
        /// The file.
        file: PathBuf,
    },
    /// It cannot be read.
    #[error("{} cannot be read", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not JSON, for instance because it was cut off.
    #[error("{} is not valid JSON: {what} at line {line}, column {column}; bring back a whole copy, or move it away and make it anew", file.display())]
    NotJson {
        /// The file.
        file: PathBuf,
        /// "ends too early" or "unexpected character".
        what: &'static str,
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// A field is missing or of another type.
    #[error("{}: {field}: {expected}", file.display())]
    Shape {
        /// The file.
        file: PathBuf,
        /// The field, such as `principals[0].private_key`.
        field: String,
        /// The expected value.
        expected: &'static str,
    },
    /// Another program has been changing it for as long as this one was willing to wait.
    #[error("{} is being changed by another zopp program; try again once that has ended", file.display())]
    Locked {
        /// The file.
        file: PathBuf,
    },
    /// The private keys cannot be decrypted.
    #[error("the private keys in {} cannot be decrypted: {source}. Is the passphrase right?", file.display())]
    Sealed {
        /// The file.
        file: PathBuf,
        /// The error of the envelope.
        source: OpenError,
    },
    /// It cannot be written; the old content is still there.
    #[error("{} cannot be written; its content is unchanged", file.display())]
    Unwritable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// `~/.zopp/config.json`, with `HOME` as the home directory.
pub fn default_path() -> Result<PathBuf, FileError> {
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty()).ok_or(FileError::NoHome)?;
    Ok(home.join(".zopp").join("config.json"))
}

/// A way in which other users of the machine can read, write or replace the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// The reason, which names the file or its folder.
    pub reason: String,
    /// The command that ends it.
    pub remedy: String,
}

/// Returns the way in which other users of the machine can read, write or replace the file. Returns `None` if they cannot, or without a file.
pub fn exposure(file: &Path) -> Option<Exposure> {
    let metadata = fs::metadata(file).ok()?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o066 != 0 {
        let reason = format!("other users of this machine can read or write {} (mode {mode:04o})", file.display());
        return Some(Exposure { reason, remedy: format!("chmod 600 {}", file.display()) });
    }
    let user = User::of_process();
    let doubt = |path: &Path, metadata: &Metadata| {
        let reason = format!("{} {}", path.display(), user.doubts(metadata)?);
        let remedy = if user.owns(metadata) { "chmod go-w" } else { "chown $(id -u)" };
        Some(Exposure { reason, remedy: format!("{remedy} {}", path.display()) })
    };
    let target = file.canonicalize().ok();
    let folders = [Some(file), target.as_deref()].into_iter().flatten().filter_map(Path::parent);
    let of_folder = |folder: &Path| {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        doubt(folder, &fs::metadata(folder).ok()?)
    };
    doubt(file, &metadata).or_else(|| folders.into_iter().find_map(of_folder))
}

/// Reads a file of either generation.
pub fn load(file: &Path) -> Result<ConfigFile, FileError> {
    let content = match fs::read(file) {
        Ok(content) => Zeroizing::new(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(FileError::Missing { file: file.to_owned() });
        }
        Err(source) => return Err(FileError::Unreadable { file: file.to_owned(), source }),
    };
    parse(&content, file)
}

/// Reads the content of a file of either generation. `file` is named in errors.
///
/// # Errors
/// If it is not JSON, or a field is missing or of another type.
pub fn parse(content: &[u8], file: &Path) -> Result<ConfigFile, FileError> {
    read::parse(content, file)
}

impl ConfigFile {
    /// The principal in use: the one named as current, or the first.
    pub fn current(&self) -> Option<&Principal> {
        match &self.current_principal {
            None => self.principals.first(),
            Some(name) => self.principals.iter().find(|principal| principal.name == *name),
        }
    }

    /// Decrypts the private keys. `file` is named in errors.
    ///
    /// # Errors
    /// [`FileError::Sealed`] if the key does not belong to the file, or an encrypted key was altered.
    pub fn open_keys(&mut self, key: &FileKey, file: &Path) -> Result<(), FileError> {
        let sealed = |source| FileError::Sealed { file: file.to_owned(), source };
        for (owner, text) in self.principals.iter_mut().flat_map(private_keys) {
            if is_sealed(text) {
                *text = key.open(text, &owner).map_err(sealed)?;
            }
        }
        Ok(())
    }

    /// Returns a copy in which all private keys are encrypted.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn with_sealed_keys(&self, key: &FileKey) -> Result<Self, SealError> {
        let mut copy = Self {
            principals: self.principals.clone(),
            current_principal: self.current_principal.clone(),
            servers: self.servers.clone(),
            protection: self.protection,
            other: self.other.clone(),
        };
        for (owner, text) in copy.principals.iter_mut().flat_map(private_keys) {
            if !is_sealed(text) {
                *text = Zeroizing::new(key.seal(text, &owner)?);
            }
        }
        Ok(copy)
    }

    /// Returns `true` if a private key is not encrypted.
    pub fn has_open_keys(&self) -> bool {
        let is_open = |principal: &Principal| {
            !is_sealed(&principal.private_key)
                || principal.x25519_private_key.as_deref().is_some_and(|key| !is_sealed(key))
        };
        self.principals.iter().any(is_open)
    }

    /// Returns what is remembered of a server. `address` is as [`crate::config::canonical_address`] gives it.
    pub fn server(&self, address: &str) -> ServerRecord {
        self.servers.get(address).cloned().unwrap_or_default()
    }
}

fn is_sealed(text: &str) -> bool {
    text.starts_with(SEALED_PREFIX)
}

/// Returns the private keys of a principal, each with the name of its owner. The public key names the principal, because a service has no
/// ID at first.
fn private_keys(principal: &mut Principal) -> impl Iterator<Item = (String, &mut Zeroizing<String>)> {
    let owner = |kind: &str| format!("{kind}:{}", principal.public_key.to_ascii_lowercase());
    let (signing, exchange) = (owner("signing"), owner("exchange"));
    let exchange = principal.x25519_private_key.as_mut().map(|key| (exchange, key));
    std::iter::once((signing, &mut principal.private_key)).chain(exchange)
}

#[cfg(test)]
mod tests;

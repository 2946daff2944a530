//! From [`ConfigFile`] to bytes on disk, readable by the owner only, in one step.

use std::{collections::BTreeMap, fs, io, os::unix::fs::DirBuilderExt, path::Path};

use serde::Serialize;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::{ConfigFile, FileError, Principal};
use crate::{private_file, server_record::ServerRecord};

const OWNER_ONLY_DIRECTORY: u32 = 0o700;

/// Enough for one principal, one server or one pin, so that the buffer with the keys is never moved while it grows.
const BYTES_PER_PRINCIPAL: usize = 4096;

/// The union of both generations' shapes.
#[derive(Serialize)]
struct Union<'a> {
    principals: Vec<UnionPrincipal<'a>>,
    current_principal: Option<&'a str>,
    user_id: &'a str,
    email: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    servers: &'a BTreeMap<String, ServerRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_protection: Option<Protection>,
    #[serde(flatten)]
    other: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct Protection {
    salt: String,
}

#[derive(Serialize)]
struct UnionPrincipal<'a> {
    id: &'a str,
    name: &'a str,
    user_id: Option<&'a str>,
    email: Option<&'a str>,
    private_key: &'a str,
    public_key: &'a str,
    x25519_private_key: Option<&'a str>,
    x25519_public_key: Option<&'a str>,
    #[serde(flatten)]
    other: &'a Map<String, Value>,
}

impl<'a> From<&'a Principal> for UnionPrincipal<'a> {
    fn from(principal: &'a Principal) -> Self {
        Self {
            id: &principal.id,
            name: &principal.name,
            user_id: principal.user_id.as_deref(),
            email: principal.email.as_deref(),
            private_key: &principal.private_key,
            public_key: &principal.public_key,
            x25519_private_key: principal.x25519_private_key.as_ref().map(|key| key.as_str()),
            x25519_public_key: principal.x25519_public_key.as_deref(),
            other: &principal.other,
        }
    }
}

/// Writes the file with mode 0600, its directory with 0700 if there is none yet. A symbolic link stays one: the file it
/// leads to is replaced.
pub fn save(file: &Path, content: &ConfigFile) -> Result<(), FileError> {
    let unwritable = |source| FileError::Unwritable { file: file.to_owned(), source };
    let current = content.current();
    let union = Union {
        principals: content.principals.iter().map(UnionPrincipal::from).collect(),
        current_principal: content.current_principal.as_deref(),
        user_id: current.and_then(|principal| principal.user_id.as_deref()).unwrap_or_default(),
        email: current.and_then(|principal| principal.email.as_deref()).unwrap_or_default(),
        servers: &content.servers,
        key_protection: content.protection.map(|protection| Protection { salt: hex::encode(protection.salt) }),
        other: &content.other,
    };
    let pins: usize = content.servers.values().map(ServerRecord::len).sum();
    let capacity = BYTES_PER_PRINCIPAL * (content.principals.len() + content.servers.len() + pins + 1);
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    serde_json::to_writer_pretty(&mut *bytes, &union).map_err(|error| unwritable(error.into()))?;
    bytes.push(b'\n');
    create_directory(file).and_then(|()| private_file::replace(file, &bytes)).map_err(unwritable)
}

pub(super) fn create_directory(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => {
            fs::DirBuilder::new().recursive(true).mode(OWNER_ONLY_DIRECTORY).create(parent)
        }
        _ => Ok(()),
    }
}

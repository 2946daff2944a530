//! The caller's identity: a principal's id and private keys, from a configuration file or from six environment variables.
//!
//! ```compile_fail
//! fn wants_debug<T: std::fmt::Debug>(_: &T) {}
//! fn check(identity: &konverge_zopp_client::Identity) { wants_debug(identity); }
//! ```

use std::path::{Path, PathBuf};

use konverge_zopp_crypto::{Fingerprint, KeyError, SigningSeed, X25519Private, at_rest::SEALED_PREFIX};
use tonic::metadata::{Ascii, MetadataValue};
use zeroize::Zeroizing;

use crate::config_file::{self, ConfigFile, FileError, Principal};

/// The variable whose presence makes the others required.
const PRINCIPAL_ID: &str = "ZOPP_PRINCIPAL_ID";
const PRINCIPAL_NAME: &str = "ZOPP_PRINCIPAL_NAME";
const PRIVATE_KEY: &str = "ZOPP_PRIVATE_KEY";
const PUBLIC_KEY: &str = "ZOPP_PUBLIC_KEY";
const X25519_PRIVATE_KEY: &str = "ZOPP_X25519_PRIVATE_KEY";
const X25519_PUBLIC_KEY: &str = "ZOPP_X25519_PUBLIC_KEY";

/// A principal with its private keys. No `Debug`; wiped on drop.
pub struct Identity {
    name: String,
    id: String,
    id_metadata: MetadataValue<Ascii>,
    user_id: Option<String>,
    email: Option<String>,
    signing_seed: SigningSeed,
    exchange_key: Option<X25519Private>,
}

/// No usable identity. Names the file and the field, or the variable, and never quotes a key.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The configuration file is missing, unreadable or not of the expected shape.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file has no principal at all.
    #[error("{} holds no principal; run \"zopp join\" first", file.display())]
    NoPrincipal {
        /// The file.
        file: PathBuf,
    },
    /// The file has no principal with the name of `current_principal`, or with the requested name.
    #[error("principal {name:?} not found in {}; it has {present}", file.display())]
    UnknownPrincipal {
        /// The file.
        file: PathBuf,
        /// The name.
        name: String,
        /// The names there are.
        present: String,
    },
    /// A variable is missing although the id is set.
    #[error("{PRINCIPAL_ID} is set but {variable} is not; all six ZOPP_* credentials are needed, or none")]
    MissingVariable {
        /// The variable.
        variable: &'static str,
    },
    /// A field is no UUID.
    #[error("{place}: not a UUID")]
    NotUuid {
        /// File and field, or variable.
        place: String,
    },
    /// A field is no key.
    #[error("{place}: {source}; 64 hexadecimal digits are expected")]
    Key {
        /// File and field, or variable.
        place: String,
        /// The error in its form.
        source: KeyError,
    },
    /// The private key is encrypted, and there is no passphrase.
    #[error(
        "{place}: the private key is encrypted with a passphrase; only zopp can read it, other programs need an unencrypted file"
    )]
    Sealed {
        /// File and field, or variable.
        place: String,
    },
    /// The two halves of a key pair do not belong together.
    #[error("{place}: does not belong to the private key beside it")]
    Mismatch {
        /// File and field, or variable.
        place: String,
    },
}

impl Identity {
    /// From the six `ZOPP_*` variables if `ZOPP_PRINCIPAL_ID` is set, else the current principal of the file, which by
    /// default is `~/.zopp/config.json`. An empty variable counts as unset.
    pub fn load(file: Option<&Path>) -> Result<Self, CredentialsError> {
        if let Some(identity) = Self::from_environment(variable)? {
            return Ok(identity);
        }
        match file {
            Some(file) => Self::from_file(file, None),
            None => Self::from_file(&config_file::default_path()?, None),
        }
    }

    /// Whether [`Identity::load`] takes the principal from the environment.
    pub fn is_in_environment() -> bool {
        given(variable, PRINCIPAL_ID).is_some()
    }

    /// From a configuration file: the principal named, or else the current one.
    pub fn from_file(file: &Path, principal: Option<&str>) -> Result<Self, CredentialsError> {
        let content = config_file::load(file)?;
        Self::from_config(&content, file, principal)
    }

    /// From a configuration already read; `file` is where from, for error texts.
    pub fn from_config(content: &ConfigFile, file: &Path, principal: Option<&str>) -> Result<Self, CredentialsError> {
        let (index, principal) = match principal.or(content.current_principal.as_deref()) {
            None => content.principals.first().map(|first| (0, first)),
            Some(name) => {
                let found = content.principals.iter().enumerate().find(|(_, principal)| principal.name == name);
                if found.is_none() && !content.principals.is_empty() {
                    let present: Vec<_> = content.principals.iter().map(|principal| principal.name.as_str()).collect();
                    return Err(CredentialsError::UnknownPrincipal {
                        file: file.to_owned(),
                        name: name.to_owned(),
                        present: present.join(", "),
                    });
                }
                found
            }
        }
        .ok_or_else(|| CredentialsError::NoPrincipal { file: file.to_owned() })?;
        Self::from_principal(principal, |field| format!("{}: principals[{index}].{field}", file.display()))
    }

    /// From the six variables as `lookup` gives them; `None` if `ZOPP_PRINCIPAL_ID` is not set, or empty.
    pub fn from_environment(lookup: impl Fn(&'static str) -> Option<String>) -> Result<Option<Self>, CredentialsError> {
        let Some(id) = given(&lookup, PRINCIPAL_ID) else {
            return Ok(None);
        };
        let required = |variable| given(&lookup, variable).ok_or(CredentialsError::MissingVariable { variable });
        let principal = Principal {
            id,
            name: required(PRINCIPAL_NAME)?,
            user_id: None,
            email: None,
            private_key: Zeroizing::new(required(PRIVATE_KEY)?),
            public_key: required(PUBLIC_KEY)?,
            x25519_private_key: Some(Zeroizing::new(required(X25519_PRIVATE_KEY)?)),
            x25519_public_key: Some(required(X25519_PUBLIC_KEY)?),
            other: serde_json::Map::new(),
        };
        let variable = |field| {
            match field {
                "id" => PRINCIPAL_ID,
                "private_key" => PRIVATE_KEY,
                "public_key" => PUBLIC_KEY,
                "x25519_private_key" => X25519_PRIVATE_KEY,
                _ => X25519_PUBLIC_KEY,
            }
            .to_owned()
        };
        Self::from_principal(&principal, variable).map(Some)
    }

    fn from_principal(principal: &Principal, place: impl Fn(&'static str) -> String) -> Result<Self, CredentialsError> {
        let key = |field| move |source| (field, source);
        let failed = |(field, source)| CredentialsError::Key { place: place(field), source };

        let id = principal.id.trim();
        let not_uuid = || CredentialsError::NotUuid { place: place("id") };
        uuid::Uuid::parse_str(id).map_err(|_| not_uuid())?;
        let id_metadata = MetadataValue::try_from(id).map_err(|_| not_uuid())?;

        if principal.private_key.starts_with(SEALED_PREFIX) {
            return Err(CredentialsError::Sealed { place: place("private_key") });
        }
        let signing_seed =
            SigningSeed::from_hex(principal.private_key.trim()).map_err(key("private_key")).map_err(failed)?;
        if !is_hex_of(&principal.public_key, signing_seed.public().to_bytes()) {
            return Err(CredentialsError::Mismatch { place: place("public_key") });
        }
        let exchange_key = match &principal.x25519_private_key {
            None => None,
            Some(text) => {
                let private =
                    X25519Private::from_hex(text.trim()).map_err(key("x25519_private_key")).map_err(failed)?;
                if let Some(public) = &principal.x25519_public_key
                    && !is_hex_of(public, private.public().to_bytes())
                {
                    return Err(CredentialsError::Mismatch { place: place("x25519_public_key") });
                }
                Some(private)
            }
        };
        Ok(Self {
            name: principal.name.clone(),
            id: id.to_owned(),
            id_metadata,
            user_id: principal.user_id.clone(),
            email: principal.email.clone(),
            signing_seed,
            exchange_key,
        })
    }

    /// The principal's id at the server, a UUID.
    pub fn principal_id(&self) -> &str {
        &self.id
    }

    /// The principal's local name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The id of the user it belongs to; `None` for a service principal.
    pub fn user_id(&self) -> Option<&str> {
        self.user_id.as_deref()
    }

    /// The e-mail address of the user it belongs to; `None` for a service principal.
    pub fn email(&self) -> Option<&str> {
        self.email.as_deref()
    }

    /// Returns the fingerprint of its public keys.
    pub fn fingerprint(&self) -> Fingerprint {
        let exchange = self.exchange_key.as_ref().map(|private| private.public().to_bytes().to_vec());
        Fingerprint::of_principal(&self.signing_seed.public().to_bytes(), &exchange.unwrap_or_default())
    }

    /// Returns the seed by which it signs requests.
    pub fn signing_seed(&self) -> &SigningSeed {
        &self.signing_seed
    }

    /// Returns the key by which it opens workspace keys; a principal of the first generation may have none.
    pub fn exchange_key(&self) -> Option<&X25519Private> {
        self.exchange_key.as_ref()
    }

    pub(crate) fn principal_id_metadata(&self) -> MetadataValue<Ascii> {
        self.id_metadata.clone()
    }
}

fn variable(name: &'static str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the value of a variable. A script or a chart that writes `ZOPP_PRINCIPAL_ID=` sets nothing, so an empty value is none.
fn given(lookup: impl Fn(&'static str) -> Option<String>, name: &'static str) -> Option<String> {
    lookup(name).filter(|value| !value.is_empty())
}

fn is_hex_of(text: &str, bytes: [u8; 32]) -> bool {
    text.trim().eq_ignore_ascii_case(&hex::encode(bytes))
}

#[cfg(test)]
mod tests;

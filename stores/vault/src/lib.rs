//! Vault and OpenBao, without Kubernetes.
mod answer;
mod breaker;
mod client;
pub mod config;
mod content;
mod error;
mod kv;
mod limits;
mod locate;
mod login;
mod mount;
mod ownership;
mod path;
mod session;
mod tls;
mod transport;

pub use client::{Health, Vault};
pub use config::{ConfigError, TlsFiles, VaultConfig};
pub use content::{Content, Field};
pub use error::VaultError;
pub use kv::{Deletion, Expected, Found, Metadata, Secret, VersionRecord, VersionState};
pub use limits::Limits;
pub use login::{Credential, Login, SERVICE_ACCOUNT_TOKEN};
pub use mount::{KvVersion, Location, Mount};
pub use ownership::{InvalidOwner, Owner, Standing};
pub use path::{PathError, PathFault, SecretPath};
pub use session::LoginCounts;

//! A zopp client: connection, identity, authenticated calls, decrypted environments.
//!
//! ```text
//! ClientConfig ──▶ Connection ─┐
//!                              ├─▶ Client (signs every call) ──▶ EnvironmentReader (fetch, watch)
//! config.json ───▶ Identity ───┘
//! ```
//!
//! # Guarantees
//!
//! - Nothing is dialled before the first call, and a lost connection is dialled again by the next one.
//!
//! - Each call ends within [`ClientConfig::call_timeout`]; an open watch notices a dead peer within
//!   [`ClientConfig::keepalive_interval`] plus [`ClientConfig::keepalive_timeout`].
//!
//! - Keys and values are wiped on drop and are in no error text.
//!
//! - The client speaks to the first generation only on request, because a signature of that generation authorises every call. A server
//!   is asked for its generation once; the answer is kept in [`trust`].
//!
//! - A workspace's key is compared with the one that [`trust`] has pinned. Another key is an error.
//!
//! - An environment is compared with its [`manifest`], where there is one. A key that is left out, an older value and an older state are
//!   errors.
//!
//! # What it does not do
//! Retry. A failed call says what kind of failure it was; how long to wait is its caller's decision.
//!
//! # Reading order
//! [`config`] → [`server_record`], [`revocation`] and [`trust`] → [`connection`] → [`identity`], [`config_file`] and [`file_owner`] → [`client`] and its table of [`calls`] →
//! [`registration`], [`lifecycle`] and [`secrets`] → [`workspace_key`], [`keys`] and [`key_rotation`] → [`manifest`] → [`environment`] and [`writer`] → [`history`].

pub mod calls;
mod channel;
pub mod client;
mod codec;
pub mod config;
pub mod config_file;
pub mod connection;
pub mod environment;
pub mod error;
mod fetch_error;
pub mod file_owner;
mod health;
pub mod history;
pub mod identity;
mod key_chain;
pub mod key_rotation;
pub mod keys;
pub mod lifecycle;
pub mod manifest;
pub mod private_file;
mod profile;
pub mod registration;
pub mod revocation;
pub mod secrets;
pub mod server_record;
pub mod trust;
pub mod workspace_key;
pub mod writer;

pub use client::Client;
pub use config::{ClientConfig, ConfigError};
pub use config_file::ConfigFile;
pub use connection::Connection;
pub use environment::{ContentFingerprint, EnvironmentReader, Snapshot, WatchEvent};
pub use error::CallError;
pub use fetch_error::FetchError;
pub use identity::{CredentialsError, Identity};
pub use key_chain::ChainFault;
pub use key_rotation::KeyRotation;
pub use konverge_zopp_crypto::{EnvironmentName, Fingerprint, FingerprintError, Profile, export::DeriveError};
pub use manifest::ManifestFault;
pub use server_record::{ClientCertificate, ServerRecord};
pub use trust::Trust;
pub use writer::EnvironmentWriter;

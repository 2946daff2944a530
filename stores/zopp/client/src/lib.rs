//! A zopp client: connection, identity, authenticated calls, decrypted environments.
//!
//! ```text
//! ClientConfig ──▶ Connection ─┐
//!                              ├─▶ Client (signs every call) ──▶ EnvironmentReader (fetch, watch)
//! config.json ───▶ Identity ───┘
//! ```
//!
//! # Guarantees
//! - Nothing is dialled before the first call, and a lost connection is dialled again by the next one.
//! - Each call ends within [`ClientConfig::call_timeout`]; an open watch notices a dead peer within
//!   [`ClientConfig::keepalive_interval`] plus [`ClientConfig::keepalive_timeout`].
//! - Keys and values are wiped on drop and are in no error text.
//! - Both generations of servers are spoken to; which one it is, is asked once per connection.
//!
//! # What it does not do
//! Retry. A failed call says what kind of failure it was; how long to wait is its caller's decision.
//!
//! # Reading order
//! [`config`] → [`connection`] → [`identity`] and [`config_file`] → [`client`] and its table of [`calls`] →
//! [`keys`] → [`environment`].

pub mod calls;
pub mod client;
mod codec;
pub mod config;
pub mod config_file;
pub mod connection;
pub mod environment;
pub mod error;
mod health;
pub mod identity;
pub mod keys;
pub mod private_file;
mod profile;

pub use client::Client;
pub use config::{ClientConfig, ConfigError};
pub use config_file::ConfigFile;
pub use connection::Connection;
pub use environment::{EnvironmentReader, Snapshot, WatchEvent};
pub use error::{CallError, FetchError};
pub use identity::{CredentialsError, Identity};
pub use konverge_zopp_crypto::{EnvironmentName, Profile};

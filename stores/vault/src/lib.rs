//! Vault and OpenBao, without Kubernetes: logins that last, KV secrets of both versions, and what has changed.
//!
//! ```text
//! VaultConfig ─▶ Vault ─┬─ locate: a path → Location (engine, version, secret)
//!   Login, TLS,         ├─ read, write (check-and-set), annotate (owner), delete
//!   limits              └─ Watches: one question per distinct location → Watch
//! ```
//!
//! One task owns the token ([`Login`]). It renews the token at two thirds of its lifetime, and one login replaces a lost token for all
//! callers. All requests share one transport, with limits ([`Limits`]) and a circuit breaker.
//!
//! # Guarantees
//!
//! - A value has a type that cannot be printed, and is part of no error. Requests and responses are wiped after use, except for the
//!   copies that the HTTP and TLS libraries make.
//!
//! - Only Vault's own 404 without messages means that a secret does not exist. An error, a missing mount or a proxy's page does not.
//!
//! - A write takes effect only if the location is unchanged since it was read ([`Expected`]), where the engine has versions.
//!
//! - A path cannot leave its mount, and cannot name an administrative route of Vault ([`SecretPath`]).
//!
//! - Errors name the request, the cause, the next step and the time of the next attempt.
//!
//! # Not supported
//! Retries, except of a request that a lost token or a lagging server prevented altogether. Leases of dynamic secrets, response
//! wrapping, and the event stream of Vault Enterprise.
//!
//! # Alternatives
//! `vaultrs` 0.8 can be built with ring. But it needs exclusive access to change its token, its errors omit headers such as
//! Retry-After, and secret values pass through strings that are never wiped. Beside our own logins, limits and pauses, only its
//! spelling of addresses would remain.
//!
//! # Reading order
//! 1. `path`, `mount`: the names of secrets.
//! 2. [`config`] and `login`; [`environment`] reads both from flags and variables.
//! 3. `transport`, on the limits, breaker, TLS and credentials of `konverge-endpoint`; then `session` and `client`.
//! 4. `kv`, `ownership` and `watch`.
//! 5. [`boundaries`]: the paths that an operator's users may name. [`policy`]: the permissions that a token needs.

mod answer;
pub mod boundaries;
mod call;
mod client;
pub mod config;
mod content;
pub mod environment;
mod error;
mod kv;
mod lifetime;
mod locate;
mod login;
mod mount;
mod mounts;
mod ownership;
mod path;
pub mod policy;
mod session;
mod transport;
mod watch;

pub use client::{Health, Vault};
pub use config::{ConfigError, VaultConfig};
pub use content::{Content, Field};
pub use error::VaultError;
pub use konverge_endpoint::{ClientText, Credential, Limits, TlsSettings};
pub use kv::{Deletion, Expected, Found, Metadata, Secret, VersionRecord, VersionState, is_before};
pub use login::{Login, SERVICE_ACCOUNT_TOKEN};
pub use mount::{KvVersion, Location, Mount};
pub use ownership::{InvalidOwner, Owner, Ownership};
pub use path::{PathError, PathFault, SecretPath};
pub use session::LoginCounts;
pub use watch::{Known, Seen, StateKey, Watch, Watches};

//! Vault and OpenBao, without Kubernetes: logins that last, KV secrets of both versions, and what has changed.
//!
//! ```text
//! VaultConfig ─▶ Vault ─┬─ locate: a path → Location (engine, version, secret)
//!   Login, TLS,         ├─ read, write (check-and-set), annotate (owner), delete
//!   limits              └─ Watches: one question per distinct location → Watch
//! ```
//!
//! Beneath it one task has the token ([`Login`]; renewed at two thirds, replaced by one login however many miss it), and one way leads to
//! the server, with limits ([`Limits`]) and a breaker that leaves a server alone which does not serve.
//!
//! # Guarantees
//! - A value is in a type that cannot be printed, and is in no error; requests and answers are wiped after use, but for the
//!   copies that the HTTP and TLS libraries make.
//! - Nothing but Vault's own 404 without words means that a secret is not there: no error, no missing mount, no proxy's page.
//! - A write takes effect only if what was read is still there ([`Expected`]), where the engine has versions.
//! - A path cannot lead out of where it begins, nor to what administers Vault ([`SecretPath`]).
//! - Errors name the request, the cause and the next step, and when to try again.
//!
//! # What it does not do
//! Retry, but for a request that a lost token or a lagging server kept from being done at all. Leases of dynamic secrets, response
//! wrapping, the event stream of Vault Enterprise.
//!
//! # Why no client from elsewhere
//! `vaultrs` 0.8 can be built with ring, but changing its token needs the client for oneself, its errors have no header such as
//! Retry-After, and what is read passes through strings that nobody wipes. What would be left of it beside logins, limits and pauses of
//! our own is the spelling of addresses.
//!
//! # Reading order
//! `path` → `mount` → [`config`] and `login` ([`environment`] makes them of flags and variables) → `transport` (limits, breaker, TLS and credentials are those of `konverge-endpoint`) → `session` → `client` → `kv` → `ownership` → `watch`; and [`boundaries`], which of all that an operator's users may name.

mod answer;
pub mod boundaries;
mod client;
pub mod config;
mod content;
pub mod environment;
mod error;
mod kv;
mod locate;
mod login;
mod mount;
mod ownership;
mod path;
mod session;
mod transport;
mod watch;

pub use client::{Health, Vault};
pub use config::{ConfigError, VaultConfig};
pub use content::{Content, Field};
pub use error::VaultError;
pub use konverge_endpoint::{Credential, Limits, TlsSettings};
pub use kv::{Deletion, Expected, Found, Metadata, Secret, VersionRecord, VersionState};
pub use login::{Login, SERVICE_ACCOUNT_TOKEN};
pub use mount::{KvVersion, Location, Mount};
pub use ownership::{InvalidOwner, Owner, Standing};
pub use path::{PathError, PathFault, SecretPath};
pub use session::LoginCounts;
pub use watch::{Known, Seen, StateKey, Watch, Watches};

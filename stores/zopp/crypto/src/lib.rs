//! The zopp key hierarchy, envelopes and request signatures.
//!
//! A principal holds two key pairs: an Ed25519 pair signs its requests, an X25519 pair opens what was wrapped for it.
//! Everything else hangs on the second:
//!
//! ```text
//! X25519Private ──opens──▶ Kek (one per workspace) ──opens──▶ Dek (one per environment) ──opens──▶ secret values
//! InviteSecret  ──opens──▶ Kek, once, for someone who joins by an invite code
//! Passphrase    ──opens──▶ the export of a principal that moves to another device, or the private keys in a file
//! ```
//!
//! The server never sees a private key, a KEK, a DEK or a value; it stores envelopes.
//!
//! # Guarantees
//!
//! - Private keys, KEKs, DEKs, invite secrets and passphrases have no `Debug`, `Display`, `Clone` or `Serialize`, and
//!   their memory is overwritten when they are dropped.
//!
//! - Bytes that come from outside (wire, file) may have any length and content: the answer is an error, never a panic.
//!
//! - Each envelope is bound to the names it belongs to, so a server cannot answer one secret with another one's bytes.
//!
//! # What it does not do
//!
//! - An envelope is not bound to a version: only a [`manifest`] shows that a value is the current one, and that no key was left out.
//!
//! - Public keys and KEKs are not authenticated by their envelopes. Principals sign the wraps that they make ([`wrap_signature`]), and
//!   clients compare and pin [`fingerprint`]s.
//!
//! # Reading order
//! [`keys`] → [`signature`] → [`envelope`] → [`hierarchy`] → [`wrap_signature`] → [`key_link`] → [`key_administrators`] → [`manifest`] →
//! [`invite`] → [`export`] → [`at_rest`] → [`fingerprint`].

pub mod at_rest;
pub mod envelope;
pub mod export;
pub mod fingerprint;
pub mod hierarchy;
pub mod invite;
pub mod key_administrators;
pub mod key_link;
pub mod keys;
pub mod manifest;
pub mod signature;
pub mod wrap_signature;

pub use envelope::{OpenError, SealError, Sealed};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use hierarchy::{EnvironmentName, WrappedKek};
pub use key_administrators::KeyAdministrators;
pub use key_link::{KeyLink, LinkError};
pub use keys::{
    Dek, EntropyError, InviteSecret, Kek, KeyError, SigningPublic, SigningSeed, X25519Private, X25519Public,
};
pub use manifest::{Manifest, ManifestError, Protection};
pub use signature::{Profile, Signed};
pub use wrap_signature::WrapToSign;

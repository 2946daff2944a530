//! The way to one HTTP endpoint, for the clients of external systems.
//!
//! ```text
//! caller ─▶ Gate ─┬─ Breaker  leaves an endpoint alone that does not serve
//!                 ├─ Pace     requests per second, with a burst
//!                 ├─ places   requests in flight
//!                 └─ deadline for one call
//! Clients   the HTTP client, rebuilt when the certificate files change
//! Connector connections below TLS, direct or through a proxy, for other clients
//! Credential   a value or a file that is read again for each use
//! ```
//!
//! Read in this order: [`Limits`]; [`breaker`]; [`Gate`], which applies both to each call; [`Clients`] and [`TlsSettings`]; [`Credential`];
//! [`address`] and [`retry_after()`].
//!
//! # Guarantees
//!
//! - A call that was not sent is told apart from one that was sent and not answered ([`NotSent`]).
//!
//! - An endpoint that does not serve gets one request now and then instead of one per caller.
//!
//! - Rotated certificates and credentials take effect without a restart. An unusable rotation keeps the last usable client.
//!
//! - No credential is in an error, a log or a `Debug` output.
//!
//! # What it does not do
//! It retries nothing and knows no store and no Kubernetes. The client of a system decides what an answer means for the breaker ([`Outcome`]).

pub mod address;
pub mod breaker;
mod credential;
mod gate;
mod limits;
mod proxy;
mod retry_after;
#[cfg(feature = "client")]
mod tls;
mod unusable;

pub use breaker::{Breaker, Outcome, Pass, Refusal};
pub use credential::Credential;
pub use gate::{Gate, NotSent};
pub use limits::{Limits, Pace};
pub use proxy::{Connector, UnsupportedProxy};
pub use retry_after::retry_after;
#[cfg(feature = "client")]
pub use tls::{ClientSettings, ClientText, Clients, TlsSettings, add_certificates, client_builder, system_roots};
pub use unusable::{Fault, Unusable};

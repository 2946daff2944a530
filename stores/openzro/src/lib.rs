//! The management API of openZro, without Kubernetes.
//!
//! ```text
//! OpenZroConfig ─▶ OpenZro ─┬─ list, get, find     → Object (raw JSON, typed views of it)
//!                           ├─ list_as             → typed views alone, for large lists
//!   token, TLS,             ├─ create              → Created (its secret apart)
//!   limits                  ├─ modify              GET, change our keys, PUT what was read
//!                           └─ delete              → Deletion (deleted, or absent already)
//! ```
//!
//! Beneath it is the gate of `konverge-endpoint`: requests per second, requests in flight, a circuit breaker, TLS files and a token file that
//! are read again, and a deadline for each call.
//!
//! # Guarantees
//!
//! - Unknown content survives: [`OpenZro::modify`] sends back the object that it read, with only the caller's keys changed.
//!
//! - `null` and a missing key are read as an empty list, for every list of the API.
//!
//! - Each error says whether the request may have taken effect ([`OpenZroError::effect`]).
//!
//! - Only the API itself can say that an object is absent. A 404 of a proxy or of a wrong address is an error ([`Cause::Foreign`]).
//!
//! - A token, a setup key and a personal access token are in no error, log or `Debug` output.
//!
//! - With a token that the server refuses, one request per pause of the breaker is sent, regardless of the number of callers.
//!
//! # What it does not do
//! It retries nothing, and it sends no write on its own. It does not hide that the API has no optimistic lock: between the GET and the PUT of
//! [`OpenZro::modify`] another client may write, and the later write wins. Read shared objects, such as the account's settings, again afterwards.
//!
//! # Facts about the server that callers must know
//!
//! The contract suite of `konverge-openzro-testing` proves each of them on the real server.
//!
//! - `GET /networks/{id}/resources` and `/routers` of a missing network answer an empty list. Only `GET /networks/{id}` tells that a network is gone.
//!
//! - PUT of a resource or router through another network's path moves it there. GET and DELETE through a wrong network answer 500 for a
//!   resource and 400 for a router.
//!
//! - PUT of a router creates it if its id is unknown.
//!
//! - A policy does not show a source group in a later rule that an earlier rule names. Of several
//!   rules in a POST one is stored. Ids of rules are unique in the
//!   whole server, across accounts. Use one rule per policy.
//!
//! - An invalid resource address answers 500 without a reason. [`Cause::Failed`] with 500 of a resource write usually means that.
//!
//! - Deleting a missing group answers 400; it counts as absent here.
//!
//! - PUT of account settings without `extra`, after `extra` was set, crashes the request in the server and blocks the whole server. [`OpenZro::modify`]
//!   never omits it, because it sends what it read.
//!
//! # Reading order
//! [`config`](OpenZroConfig) → [`Collection`] and [`Place`] → [`Object`] and [`types`] → `answer` → `client`.

mod answer;
mod client;
mod config;
mod error;
mod object;
mod place;
pub mod types;

pub use client::{Created, Deletion, Feature, Modified, OpenZro};
pub use config::{CallObserver, CallRecord, ConfigError, OpenZroConfig};
pub use error::{Cause, Effect, OpenZroError};
pub use konverge_endpoint::{Credential, Limits, TlsSettings};
pub use object::{Fields, Object};
pub use place::{Collection, InvalidId, Place};

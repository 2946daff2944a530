//! What every job shares and nobody needs IO for.
//!
//! Read in this order: [`SecretValue`], the one type that carries a secret; [`digest`], how change is noticed without keeping
//! values; [`error`], what a failure means for the next attempt, and [`reasons`], how it is called; [`backoff`], how long to wait for it, and
//! [`contest`], how long where somebody undoes what is written; [`http_status`] and [`api_server`], the class of each answer, and [`outage`],
//! the circuit breaker of an endpoint; [`reverse_index`], which objects refer to one, and [`claims`], which of them has it; [`names`], how many are
//! told; [`with!`], how settings are changed.
//!
//! This crate imports no runtime, no client and no clock; randomness is handed in.

pub mod api_server;
pub mod backoff;
pub mod claims;
pub mod contest;
pub mod digest;
pub mod error;
pub mod http_status;
pub mod names;
pub mod outage;
pub mod reasons;
pub mod reverse_index;
mod secret;
mod with;

pub use secret::SecretValue;

//! Values and rules that every job shares and that need no IO.
//!
//! Begin with [`SecretValue`], the one type that carries a secret, and [`digest`], which notices changes without keeping values. An [`error`] has a
//! class for the next attempt, and one of the [`reasons`] as its name. The next attempt waits for the [`backoff`], or for the [`revert_backoff`] if
//! an actor keeps reverting our writes. The modules [`http_status`] and [`api_server`] have the class of each answer, and [`outage`] is the circuit
//! breaker of an endpoint. A [`reverse_index`] finds the objects that refer to one, and [`claims`] say which of them has it. A [`deletion_guard`] keeps
//! one mistake from emptying a store. The module [`names`] shortens lists of names, and [`with!`] changes settings.
//!
//! This crate imports no runtime, no client and no clock; randomness is handed in.

pub mod allow;
pub mod api_server;
pub mod backoff;
pub mod claims;
pub mod deletion_guard;
pub mod digest;
pub mod error;
pub mod http_status;
pub mod names;
pub mod outage;
pub mod reasons;
pub mod reverse_index;
pub mod revert_backoff;
mod secret;
mod with;

pub use secret::SecretValue;

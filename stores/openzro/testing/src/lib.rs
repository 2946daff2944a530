//! The contract of openZro's management API as tests, and a double of the server that they verify.
//!
//! [`contract::PROPERTIES`] are functions over a [`Session`], and cannot tell on which target they run. Each makes calls, asserts what clients rely
//! on, and leaves a transcript in which ids, times and keys have symbols. The transcripts of the real server are committed in `verified/`, with a
//! [`record`] of its version, the date and the digest of the suite. So the [`Double`] is held to the real server's answers on every machine, also
//! on one without the server.
//!
//! # Rules
//! - The double knows only what a property has asked of the real server. It answers 501 for any other route, query or field, and fails the test.
//! - Faults never live in the double. `HttpFront` of `konverge-testkit-stores` makes them, before either target.
//! - A suite whose digest is not that of the record is red: no server has seen it. `cargo xtask openzro --record` runs it on the server.

pub mod contract;
mod double;
pub mod record;
mod target;

pub use double::Double;
pub use target::{Account, Reply, Session, ZERO_TIME};

//! The client over the wire, against a small server that can also misbehave.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod environment;
mod failures;
mod generations;
mod server;
mod tls;

//! The operator as a process, under exactly the role it generates, against a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod bad_days;
mod bad_input;
mod crashing;
mod syncing;

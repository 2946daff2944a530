//! Both controllers in one process, under exactly the role they generate, against a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod bad_days;
mod collector;
mod crashing;
mod secrecy;
mod stage;
mod syncing;

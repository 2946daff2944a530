//! Controllers in a program, in this process, against a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod admitting;
mod annotated;
mod failing;
mod outside;
mod pausing;
mod stage;
mod waking;
mod watching;

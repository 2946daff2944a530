//! Controllers in a program, in this process, against a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod annotated;
mod failing;
mod pausing;
mod stage;
mod waking;

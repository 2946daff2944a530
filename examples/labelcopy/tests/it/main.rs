//! The operator under exactly the role it generates, between a real API server and a list that fails when a test says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod copying;
mod documented;
mod list;
mod stage;

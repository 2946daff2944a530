//! Single runs without an API server, and the operator as a process, under exactly the role it generates, against a real one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod deploy;
mod life;
mod reconcile;

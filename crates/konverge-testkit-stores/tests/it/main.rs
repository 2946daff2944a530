//! The servers of outside systems, tested on what they hold.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod http_front;
mod vault_server;

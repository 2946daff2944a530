//! The client against a real Vault, and against a double for what a real one shows only on bad days.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod double;
mod foreign;
mod kv;
mod logins;
mod outages;
mod policy;
mod refusals;
mod support;
mod tls;
mod watch;

//! The operator between a real API server and a real Vault.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod altered;
mod at_an_interval;
mod bad_input;
mod between;
mod clearing;
mod deploy;
mod docs;
mod documented;
mod escaping;
mod following;
mod journal;
mod keeping;
mod late;
mod left_behind;
mod migrating;
mod outages;
mod owning;
mod prefetching;
mod reverting;
mod standby;
mod vault_push;
mod world;

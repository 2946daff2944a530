//! The operator on a real API server, before the verified double and, where this machine has it, the real openZro server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod accounts;
mod economy;
mod groups;
mod originals;
mod policies;
mod routing;
mod setup_keys;
mod stage;
mod tenants;

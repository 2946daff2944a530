//! `zopp sync k8s` and `zopp diff k8s` against a real control plane and a real zopp server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod stage;
mod syncing;

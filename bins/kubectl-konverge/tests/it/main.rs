//! The plugin as a program, with the operator that answers it, on a real API server and a real Vault.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod all_in_one;
mod asking;
mod bad_input;
mod charted;
mod doctoring;
mod openzro;
mod rolling;
mod stage;
mod status_why_diff;

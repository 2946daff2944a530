//! Definitions, webhooks and exposed Services on a real API server, without openZro.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod definitions;
mod exposing;
mod injecting;
mod routing;
mod stage;

//! Definitions, webhooks and exposed Services on a real API server, without openZro.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(clippy::needless_pass_by_value, clippy::too_many_lines, reason = "the rows of tables are made in place")]

mod definitions;
mod draining;
mod exposing;
mod injecting;
mod routing;
mod stage;

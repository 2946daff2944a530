//! The program as it is built, under the role that is shipped, between a real API server, a real Vault and a zopp server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod deployed;
mod ending;
mod leasing;
mod making;
mod migrating;
mod misused;
mod stage;
mod whole_way;

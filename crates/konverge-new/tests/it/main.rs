//! The crates that `konverge new` makes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod crates;
#[path = "../page/mod.rs"]
mod page;
mod tutorial;

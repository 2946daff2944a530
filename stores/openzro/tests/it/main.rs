//! The contract of the management API on the double and on the real server, and the client on both, with faults between.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod client;
mod contract;
mod faults;
mod target;

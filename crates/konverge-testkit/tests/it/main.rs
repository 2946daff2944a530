//! The test kit, tested on what it starts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod control_plane;
mod crash;
mod double;
mod fault_proxy;
mod leftovers;
mod processes;
mod written_programs;

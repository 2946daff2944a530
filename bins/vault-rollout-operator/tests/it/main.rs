//! The program as it is shipped, under the role that is shipped, on bad days, with a real API server and real controllers of workloads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod canary;
mod crashing;
mod down;
mod dropped_in;
mod faults;
mod joining;
mod leading;
mod memory;
mod narrow;
mod network_faults;
mod outside;
mod past;
mod proxied;
mod refused;
mod shipped;
mod stage;
mod stopping;
mod travelling;
mod trusting;
mod unobserved;
mod vault;
mod view;
mod way;

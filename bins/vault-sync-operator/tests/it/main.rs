//! The program as it is shipped, under the role that is shipped, between a real API server and a real Vault.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod confining;
mod crashing;
mod crowding;
mod deployed;
mod deposing;
mod engines;
mod exposing;
mod forms;
mod front;
mod grace;
mod hanging;
mod inheriting;
mod intending;
mod large;
mod leading;
mod life;
mod lives;
mod memory;
mod narrow;
mod network_faults;
mod pushes;
mod racing;
mod refusing;
mod searching;
mod selecting;
mod shipped;
mod stage;
mod uninstalling;
mod vault_crashing;
mod watching;

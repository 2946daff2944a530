//! The operator as a process, killed and misled at each of its writes to openZro.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod crashing;
mod lives;
mod secrecy;
mod shipped;
mod soaking;
mod stage;

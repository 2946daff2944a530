//! The pull operator among real parts, with a scripted server only where a real one cannot be made to fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod altered;
mod denied;
mod following;
mod hub;
mod late;
mod objects;
mod outages;
mod refusing;
mod restart;
mod reverting;
mod scripted;
mod sources;
mod standby;
mod templates;
mod vault;
mod world;

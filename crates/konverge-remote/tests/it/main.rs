//! The layer against a server in memory: every call fails in every way, and lists are shared.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod deletions;
mod drift;
mod enumeration;
mod inherited;
mod parts;
mod sharing;
mod world;

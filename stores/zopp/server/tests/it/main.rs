//! The server over real gRPC and a real file, in this process and as a process of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod accounts;
mod audit;
mod authentication;
mod command;
mod harness;
mod health;
mod invites;
mod permissions;
mod secrets;
mod validation;
mod watch;

//! The server over real gRPC and a real file, in this process and as a process of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod accounts;
mod answers;
mod audit;
mod authentication;
mod changes;
mod command;
mod crash;
mod database;
mod event_order;
mod exports;
mod first_generation;
mod grants;
mod groups;
mod harness;
mod health;
mod history;
mod hostile;
mod identity;
mod invites;
mod key_rotation;
mod kills;
mod ladder;
mod lifecycle;
mod limits;
mod outages;
mod permissions;
mod remembered;
mod replicas;
mod round_trips;
mod secrets;
mod team;
mod validation;
mod watch;
mod wraps;

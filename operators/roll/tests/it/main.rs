//! The operator with a real API server and real controllers of workloads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod altered;
mod at_scale;
mod deploy;
mod docs;
mod exactly_once;
mod failed;
mod fair;
mod gitops;
mod held;
mod hostile;
mod obstacles;
mod reloader;
mod required;
mod standby;
mod vault_rollout;
mod vault_sync_status;
mod who;
mod world;

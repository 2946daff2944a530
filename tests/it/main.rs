//! The whole way, on real parts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod demo;
mod demo_on_named_cluster;
mod deploy;
mod first_key;
mod open_starts;
mod outages;
mod path;
mod proxies;
mod published_zopp;
mod pull_bad_input;
mod pull_faults;
mod quiet;
mod recorder;
mod secret_sources;
mod shared_stage;
mod stopping;
mod variables;

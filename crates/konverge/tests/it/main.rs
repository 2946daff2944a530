//! Controllers in a program, in this process, against a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod admitting;
mod annotated;
mod caching;
mod charting;
mod choosing;
mod cleaning;
mod definitions;
mod deselecting;
mod dry_run;
mod escaping;
mod failing;
mod faults;
#[path = "../helm/mod.rs"]
mod helm;
mod hooked;
mod hooked_at_url;
mod leading;
mod optional;
mod ordering;
mod outside;
mod owning;
mod pausing;
mod process;
mod releasing;
mod restoring;
mod scraping;
mod several;
mod stage;
mod test_runs;
mod truth;
mod versions;
mod waking;
mod watching;
mod webhook_caches;

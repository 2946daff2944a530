//! The operator on a real API server, before the verified double and, where this machine has it, the real openZro server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod accepted;
mod accounts;
mod deletions;
mod documented;
mod draining;
mod dry_run;
mod economy;
mod every_kind;
mod forged;
mod groups;
mod hostile;
mod least_role;
mod missing;
mod originals;
mod policies;
mod references;
mod removal;
mod rivals;
mod routing;
mod rules;
mod setup_keys;
mod stage;
mod tenants;

//! The operators under exactly the roles they generate, against a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod policy;
mod redis;

use std::time::Duration;

/// How long a test waits for what takes milliseconds on a machine at rest.
const LIMIT: Duration = Duration::from_mins(1);

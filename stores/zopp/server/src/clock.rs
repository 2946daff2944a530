//! The wall clock, as the wire and the database count it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn since_epoch() -> Duration {
    // A clock before 1970 counts as 1970: every signature is then refused, which says what is wrong.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Unix seconds.
pub(crate) fn now() -> i64 {
    i64::try_from(since_epoch().as_secs()).unwrap_or(i64::MAX)
}

/// Unix milliseconds.
pub(crate) fn now_milliseconds() -> i64 {
    i64::try_from(since_epoch().as_millis()).unwrap_or(i64::MAX)
}

/// Unix microseconds.
pub(crate) fn now_microseconds() -> i64 {
    i64::try_from(since_epoch().as_micros()).unwrap_or(i64::MAX)
}

//! When a connection to PostgreSQL was last found gone. Connections that have been idle since then may be gone as well.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A connection that nobody used for so long is asked whether it is still there. That is a round trip, which a busy server saves.
const TRUSTED: Duration = Duration::from_millis(100);
/// When a statement of this process last failed because its connection was gone.
static LOST: Mutex<Option<Instant>> = Mutex::new(None);

/// Notes that the connection of a statement was gone.
pub(super) fn note() {
    *lost() = Some(Instant::now());
}

/// Must a connection be asked whether it is still there, after nobody has used it for so long?
pub(super) fn is_doubtful(idle: Duration) -> bool {
    idle > TRUSTED || lost().is_some_and(|lost| idle + TRUSTED >= lost.elapsed())
}

fn lost() -> MutexGuard<'static, Option<Instant>> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner)
}

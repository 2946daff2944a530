//! Waiting for a condition, never for time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often a condition is looked at. Short, because tests measure latencies by it.
const PAUSE: Duration = Duration::from_millis(5);

/// The condition did not hold in time.
#[derive(Debug, thiserror::Error)]
#[error("the condition did not hold within {} s", .0.as_secs_f32())]
pub struct NotInTime(Duration);

/// Calls `condition` until it gives something, for at most `limit`. It is looked at once at least.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::time::Duration;
///
/// let mut calls = 0;
/// let third = konverge_testkit::eventually(Duration::from_secs(5), || {
///     calls += 1;
///     std::future::ready((calls == 3).then_some("third"))
/// });
/// assert_eq!(third.await.unwrap(), "third");
/// # });
/// ```
pub async fn eventually<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    mut condition: impl FnMut() -> F,
) -> Result<T, NotInTime> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = condition().await {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(NotInTime(limit));
        }
        sleep(PAUSE).await;
    }
}

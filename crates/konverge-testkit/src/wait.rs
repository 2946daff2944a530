//! Waiting for a condition, never for time.

use std::{fmt::Display, time::Duration};

use tokio::time::{Instant, sleep};
use tower::BoxError;

/// The pause after the first look at a condition.
const PAUSE: Duration = Duration::from_millis(10);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The time limit of every wait. It is long enough for a busy machine.
const NEVER: Duration = Duration::from_secs(90);

/// The condition did not hold in time.
#[derive(Debug, thiserror::Error)]
#[error("the condition did not hold within {} s", .0.as_secs_f32())]
pub struct NotInTime(Duration);

/// Calls `condition` until it gives something, for at most `limit`. It is looked at once at least.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::{fmt::Display, time::Duration};
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
    let begun = Instant::now();
    let deadline = begun + limit;
    loop {
        if let Some(value) = condition().await {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(NotInTime(limit));
        }
        sleep(pause(begun.elapsed())).await;
    }
}

/// Waits until it is so and gives what was found.
///
/// # Panics
/// With `what` and with what was seen last, if it is not so within 90 seconds.
#[expect(clippy::panic, reason = "a test that waits in vain has failed")]
pub async fn until<T, E: Display>(what: &str, mut is_so: impl AsyncFnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    let deadline = begun + NEVER;
    loop {
        match is_so().await {
            Ok(value) => return value,
            Err(seen) if Instant::now() >= deadline => panic!("not within {NEVER:?}: {what}; seen last: {seen}"),
            Err(_) => sleep(pause(begun.elapsed())).await,
        }
    }
}

/// The pause before the next look, after this time. It grows, because each look costs the servers some requests, and tests that wait side by side
/// would keep two processors busy with nothing else. A wait lasts five percent longer by that at most.
pub(crate) fn pause(waited: Duration) -> Duration {
    (waited / 20).clamp(PAUSE, LONGEST_PAUSE)
}

/// Waits until it is so, as [`until`] does.
///
/// # Panics
/// As [`until`] does, and at once if it cannot be told.
#[expect(clippy::panic, reason = "a test that cannot ask has failed")]
pub async fn until_true(what: &str, mut is_so: impl AsyncFnMut() -> Result<bool, BoxError>) {
    until(what, async || match is_so().await {
        Ok(true) => Ok(()),
        Ok(false) => Err("it is not so"),
        Err(error) => panic!("cannot tell whether {what}: {error}"),
    })
    .await;
}

/// Waits until a number is as expected, such as a gauge, and then for `quiet` to see that it stays so.
///
/// # Panics
/// As [`until`] does, and if the number has changed after `quiet`.
pub async fn settles_at(what: &str, expected: f64, quiet: Duration, number: impl AsyncFn() -> f64) {
    until(what, async || match number().await {
        found if is_same(found, expected) => Ok(()),
        found => Err(found),
    })
    .await;
    sleep(quiet).await;
    let found = number().await;
    assert!(is_same(found, expected), "{what}: {expected} has become {found}");
}

/// Counts are whole numbers in a format for all numbers.
fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() < 0.5
}

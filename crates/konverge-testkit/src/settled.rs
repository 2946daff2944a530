//! Whether an operator has anything left to do, as the metrics of its work queues tell.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{scrape::metric, wait::until};

/// Between two looks at the metrics.
const PAUSE: Duration = Duration::from_millis(100);

/// The work of all queues of an operator so far.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Work {
    added: f64,
    begun: f64,
    ended: f64,
    due: f64,
}

impl Work {
    fn of(scraped: &str) -> Self {
        let sum = |name| metric(scraped, name, "");
        Self {
            added: sum("workqueue_adds_total"),
            begun: sum("workqueue_queue_duration_seconds_count"),
            ended: sum("workqueue_work_duration_seconds_count"),
            due: sum("workqueue_depth"),
        }
    }

    /// Whether no key is due, and none is worked on.
    fn is_idle(self) -> bool {
        self.due < 1.0 && self.begun <= self.ended
    }
}

/// Waits until an operator has settled: no key of its work queues is due or worked on, and none was added or taken for the time `quiet`. After that, a
/// test can say what the operator did not do. `scrape` returns the text of the operator's metrics.
///
/// A key that waits for a later time does not count. So `quiet` must be longer than the delivery of an event, than the pause between two runs of a key,
/// and than the interval of a poll that the test relies on. A second is mostly enough.
///
/// # Panics
/// If the operator has not settled within 90 seconds.
pub async fn settled(quiet: Duration, scrape: impl AsyncFn() -> String) {
    let mut last = (Instant::now(), Work::of(&scrape().await));
    until("the operator has settled", async || {
        sleep(PAUSE).await;
        let now = Work::of(&scrape().await);
        if now != last.1 || !now.is_idle() {
            last = (Instant::now(), now);
        }
        if last.0.elapsed() < quiet { Err(format!("{now:?}")) } else { Ok(()) }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const QUIET: Duration = Duration::from_secs(1);

    fn text(added: u32, begun: u32, ended: u32, due: u32) -> String {
        let queue = |name, figure| format!("{name}{{name=\"a\",controller=\"a\"}} {figure}\n");
        [
            queue("workqueue_adds_total", added),
            queue("workqueue_queue_duration_seconds_count", begun),
            queue("workqueue_work_duration_seconds_count", ended),
            queue("workqueue_depth", due),
        ]
        .concat()
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_without_work_settles_after_that_time() {
        let begun = Instant::now();
        settled(QUIET, async || text(7, 5, 5, 0)).await;
        assert!((QUIET..2 * QUIET).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_are_added_due_or_worked_on_are_waited_for() {
        for unsettled in [text(8, 5, 5, 0), text(7, 5, 5, 1), text(7, 6, 5, 0)] {
            let (begun, scrapes) = (Instant::now(), Cell::new(0));
            let scrape = async || {
                scrapes.set(scrapes.get() + 1);
                // For two seconds, each look finds work.
                if scrapes.get() % 2 == 0 && scrapes.get() <= 20 { unsettled.clone() } else { text(7, 5, 5, 0) }
            };
            settled(QUIET, scrape).await;
            assert!(begun.elapsed() + 2 * PAUSE >= 3 * QUIET, "{unsettled}: {:?}", begun.elapsed());
        }
    }
}

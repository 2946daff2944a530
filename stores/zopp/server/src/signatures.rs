//! Forgets signatures that are too old to be accepted.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{auth::LIFETIME_SECONDS, store::Store};

/// How often.
const EVERY: Duration = Duration::from_mins(1);
/// For how long a signature is remembered beyond its life: the clocks of two replicas may differ.
const SLACK_SECONDS: i64 = 300;

/// Forgets used signatures, now and every minute, until the calls are `finished`.
pub(crate) async fn forget(store: Store, finished: CancellationToken) {
    let mut period = interval(EVERY);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = period.tick() => {}
            () = finished.cancelled() => return,
        }
        if let Err(error) = store.forget_signatures(LIFETIME_SECONDS + SLACK_SECONDS).await {
            tracing::error!(error = &error as &dyn std::error::Error, "old signatures could not be forgotten");
        }
    }
}

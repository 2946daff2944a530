//! The regular upkeep of a running server's database. It erases earlier values beyond the limits, forgets signatures that are too old to be
//! accepted, and empties the log of a SQLite file, in which deleted ciphertexts stay otherwise.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{auth::replay::LIFETIME_SECONDS, store::Store};

/// How often.
const EVERY: Duration = Duration::from_mins(1);
/// For how long a signature is remembered beyond its life: the clocks of two replicas may differ.
const SLACK_SECONDS: i64 = 300;

/// Tends the database, now and every minute, until the calls are `finished`.
pub(crate) async fn run(store: Store, finished: CancellationToken) {
    // The limits may have been lowered since the last start.
    if let Err(error) = store.trim_histories().await {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "earlier values beyond the limits could not be erased"
        );
    }
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
        if let Err(error) = store.empty_log().await {
            tracing::error!(error = &error as &dyn std::error::Error, "the log of the database could not be emptied");
        }
    }
}

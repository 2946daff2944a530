//! How a workload of an earlier wave stands in the way of later ones.

use jiff::SignedDuration;

use super::judge::{Judged, judge};
use crate::{decision::Verdict, digest::Digester, state::Snapshot, wait::Deferral, waves::Peer};

use crate::time::Time;

/// The shortest time.
const MOMENT: SignedDuration = SignedDuration::from_nanos(1);

/// Returns how a workload of an earlier wave stands. `rollout_timeout` is how long it may take to become ready.
pub fn peer(snapshot: &Snapshot, digester: &Digester, now: Time, rollout_timeout: SignedDuration) -> Peer {
    let Judged { record, verdict, deferral, again, .. } = judge(snapshot, digester, now);
    let waits = deferral.values().any(Deferral::is_waited_for);
    let in_step = !waits && !matches!(verdict, None | Some(Verdict::Roll { .. }));
    let health = &snapshot.workload.health;
    // A workload that is held back for a while, as by a pause or the budget, reports that, and is no trouble.
    let since = if in_step {
        // Pods that went away long after a rollout have their own time to come back.
        record.and_then(|record| Some(now.recorded_or_now(record.rolled?))).max(snapshot.pods.unready)
    } else {
        [health.undecided, health.troubled].into_iter().flatten().min()
    };
    let overdue = since.is_some_and(|since| now.since(since) > rollout_timeout);
    let end = since.map(|since| since.later(rollout_timeout + MOMENT)).filter(|_| !overdue);
    let until =
        deferral.values().filter_map(Deferral::until).chain(again).chain(end).filter(|until| *until > now).min();
    Peer { in_step, progress: snapshot.pods.rollout.progress, overdue, until }
}

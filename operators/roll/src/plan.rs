//! The plan for a workload: a pure function of a snapshot. No lock, no client, no clock.
//!
//! [`judge`](judge::judge) compares the content that there is with what is recorded. [`plan`] adds what only a run of the workload itself needs, and
//! [`peer`] what only the later waves need.

mod awaited;
pub mod judge;

use std::collections::BTreeMap;

use jiff::SignedDuration;
use konverge_apply::Statement;
use litemap::LiteMap;

use self::judge::{Judged, judge};
use crate::{
    decision::Verdict,
    declarations::{Invalid, WorkloadSpec},
    digest::Digester,
    object::{SourceName, SourceRef},
    record::Record,
    state::{Snapshot, workload::Observed},
    time::Time,
    uses::Use,
    wait::Deferral,
    waves::Peer,
};

/// The shortest time.
const MOMENT: SignedDuration = SignedDuration::from_nanos(1);

/// A workload that has opted in, and the plan for it.
#[derive(Debug)]
pub struct View {
    /// The input of the plan.
    pub snapshot: Snapshot,
    /// The plan.
    pub plan: Plan,
    /// Whether it was not known until now what is to be done.
    pub is_decided_now: bool,
}

impl View {
    /// Returns the workload as the API server has it.
    pub fn observed(&self) -> &Observed {
        self.snapshot.observed()
    }

    /// Returns its uid.
    pub fn uid(&self) -> &str {
        &self.observed().uid
    }

    /// Returns the spec in its annotations.
    pub fn spec(&self) -> Result<&WorkloadSpec, &Invalid> {
        self.observed().spec.as_deref().map_err(|invalid| &**invalid)
    }

    /// Returns the sources that it is rolled for.
    pub fn uses(&self) -> &LiteMap<SourceName, Use> {
        &self.snapshot.workload.uses.current
    }

    /// Returns since when it has been waiting to be rolled.
    pub fn pending(&self) -> Option<Time> {
        self.snapshot.workload.health.pending.map(|(since, _)| since)
    }
}

/// The plan of a run.
#[derive(Debug)]
pub struct Plan {
    /// The record of the workload, if it is its own.
    pub record: Option<Record>,
    /// Whether that record stands on it, and was not removed.
    pub is_noted: bool,
    /// The decision. `None` while a source of the workload has not been read.
    pub verdict: Option<Verdict>,
    /// The sources that have changed and roll nothing yet, and why.
    pub deferral: BTreeMap<SourceName, Deferral>,
    /// When to look again though nothing happens.
    pub again: Option<Time>,
    /// The sources to read again before a decision: another leader has written the record, and may have seen newer content.
    pub doubted: Vec<SourceRef>,
    /// When a source that it may be rolled for changed last, as far as that was seen.
    pub changed: Option<Time>,
    /// The sources that may not be read.
    pub refused: Vec<Statement>,
    /// Until when its record is not restored, because another client keeps removing it.
    pub contested_until: Option<Time>,
}

/// Plans a run of a workload.
pub fn plan(snapshot: &Snapshot, digester: &Digester, now: Time) -> Plan {
    let Judged { record, is_noted, mut verdict, deferral, again } = judge(snapshot, digester, now);
    let doubted = doubted(snapshot, verdict.as_ref());
    if !doubted.is_empty() {
        verdict = None;
    }
    let (mut changed, mut refused) = (None, Vec::new());
    for name in snapshot.workload.uses.current.keys() {
        let Some(source) = snapshot.source(name) else { continue };
        if !deferral.contains_key(name) {
            changed = source.changed.max(changed);
        }
        refused.extend(source.refused.clone());
    }
    let contested_until = snapshot.workload.record.contested_until(now);
    Plan { record, is_noted, verdict, deferral, again, doubted, changed, refused, contested_until }
}

/// Returns the sources that this process may have read too early: another leader has rolled the workload, which this verdict would roll back.
fn doubted(snapshot: &Snapshot, verdict: Option<&Verdict>) -> Vec<SourceRef> {
    let Some(Verdict::Roll { changed, .. }) = verdict.filter(|_| snapshot.workload.record.doubted) else {
        return Vec::new();
    };
    // A version in Vault says itself whether it is older.
    let in_cluster = snapshot.workload.uses.current.keys().filter(|name| !name.kind.is_in_vault());
    let changed = in_cluster.filter(|name| changed.contains(&name.to_string()));
    changed.map(|name| name.of(&snapshot.key.namespace)).collect()
}

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

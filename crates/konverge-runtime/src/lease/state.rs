//! The election's decisions, as a state machine that is told the time and what the API server said.
//!
//! Two processes never lead at once, as long as all clocks run at the same speed. A leader counts its time from when it
//! *sent* the write that the API server accepted. The others count the longer lease duration from when they *saw* that
//! write, which is later. Wall clocks are written down for people and decide nothing. Writes carry the version that was
//! read, so of two that race one is refused.

use std::time::Duration;

use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};
use tokio::time::Instant;

use super::Timings;

/// One candidate's view of the election.
#[derive(Debug)]
pub(super) struct Election {
    identity: String,
    timings: Timings,
    seen: Option<Seen>,
    /// Whether `seen` is what the API server said last, and not overtaken by a write whose fate is unknown.
    is_fresh: bool,
    /// Set while leading: when leading ends unless a renewal succeeds before.
    leads_until: Option<Instant>,
}

/// The lease object as it was read, and since when it has looked like that.
#[derive(Debug)]
struct Seen {
    spec: LeaseSpec,
    version: String,
    unchanged_since: Instant,
}

/// The next step.
#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    /// Ask the API server for the object.
    Read,
    /// Make the object.
    Create(LeaseSpec),
    /// Write this over the object, if it still has this version.
    Replace {
        /// The content to write.
        spec: LeaseSpec,
        /// The version it had when it was read.
        version: String,
    },
    /// Another candidate holds the lease; look again at the next round.
    Wait,
    /// The leadership is over, by time or because another holds the lease. Nothing may be done in its name any more.
    Lost,
}

impl Election {
    pub(super) fn new(identity: String, timings: Timings) -> Self {
        Self { identity, timings, seen: None, is_fresh: false, leads_until: None }
    }

    /// The identity of this candidate.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Until when this candidate leads, if it does.
    pub(super) fn leads_until(&self) -> Option<Instant> {
        self.leads_until
    }

    fn holder(&self) -> Option<&str> {
        let holder = self.seen.as_ref()?.spec.holder_identity.as_deref()?;
        (!holder.is_empty()).then_some(holder)
    }

    /// The holder at the last read, if it was another candidate.
    pub(super) fn other_holder(&self) -> Option<&str> {
        self.holder().filter(|holder| *holder != self.identity)
    }

    /// Begins a round. A candidate looks at the object anew; a leader trusts what it wrote.
    pub(super) fn begin_round(&mut self) {
        self.is_fresh &= self.leads_until.is_some();
    }

    /// The step at `now`; `stamp` is the wall clock's time for the object.
    pub(super) fn decide(&self, now: Instant, stamp: &MicroTime) -> Decision {
        if self.leads_until.is_some_and(|until| now >= until) {
            return Decision::Lost;
        }
        if !self.is_fresh {
            return Decision::Read;
        }
        let Some(seen) = &self.seen else {
            return Decision::Create(self.taken(None, stamp));
        };
        if self.holder() == Some(&self.identity) {
            // Also when a write whose answer was lost turns out to have worked.
            let spec = LeaseSpec { renew_time: Some(stamp.clone()), ..self.held(&seen.spec) };
            return Decision::Replace { spec, version: seen.version.clone() };
        }
        if self.leads_until.is_some() {
            return Decision::Lost;
        }
        if self.holder().is_some() && now < seen.unchanged_since + self.duration_of(&seen.spec) {
            return Decision::Wait;
        }
        Decision::Replace { spec: self.taken(Some(&seen.spec), stamp), version: seen.version.clone() }
    }

    /// When the lease of another will have been seen unchanged for as long as it lasts, and can be taken.
    pub(super) fn runs_out(&self) -> Option<Instant> {
        let seen = self.seen.as_ref().filter(|_| self.other_holder().is_some())?;
        Some(seen.unchanged_since + self.duration_of(&seen.spec))
    }

    /// Returns the content that releases the lease, if it is held.
    pub(super) fn release(&self, stamp: &MicroTime) -> Option<(LeaseSpec, String)> {
        // A holder that is somebody else must never be written over, however sure this candidate was a moment ago.
        let seen = self.seen.as_ref().filter(|_| self.is_fresh && self.holder() == Some(&self.identity))?;
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            renew_time: Some(stamp.clone()),
            ..seen.spec.clone()
        };
        Some((spec, seen.version.clone()))
    }

    /// The object was read at `now`; nothing if there is none.
    pub(super) fn found(&mut self, object: Option<(LeaseSpec, String)>, now: Instant) {
        self.seen = object.map(|(spec, version)| {
            // The version alone does not count: a label that somebody edits is no sign of life.
            let unchanged_since = match &self.seen {
                Some(seen) if seen.spec == spec => seen.unchanged_since,
                _ => now,
            };
            Seen { spec, version, unchanged_since }
        });
        self.is_fresh = true;
    }

    /// The write that was sent at `sent` was accepted, and this is the object since.
    pub(super) fn written(&mut self, spec: LeaseSpec, version: String, sent: Instant) {
        self.found(Some((spec, version)), sent);
        self.leads_until = Some(sent + self.timings.renew_deadline);
    }

    /// A call failed: what the object looks like is unknown.
    pub(super) fn failed(&mut self) {
        self.is_fresh = false;
    }

    fn held(&self, before: &LeaseSpec) -> LeaseSpec {
        LeaseSpec {
            lease_duration_seconds: i32::try_from(self.timings.lease_duration.as_secs()).ok(),
            ..before.clone()
        }
    }

    fn taken(&self, before: Option<&LeaseSpec>, stamp: &MicroTime) -> LeaseSpec {
        let transitions = before.map_or(0, |before| before.lease_transitions.unwrap_or_default().saturating_add(1));
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            acquire_time: Some(stamp.clone()),
            renew_time: Some(stamp.clone()),
            lease_transitions: Some(transitions),
            ..self.held(before.unwrap_or(&LeaseSpec::default()))
        }
    }

    /// How long a lease that looks like this is respected. The holder's lease duration counts, not ours.
    fn duration_of(&self, spec: &LeaseSpec) -> Duration {
        let promised = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        promised.map_or(self.timings.lease_duration, Duration::from_secs)
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

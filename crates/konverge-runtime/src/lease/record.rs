//! What a Lease says and what follows from it, without a clock or a client of its own.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use tokio::time::Instant;

/// What a candidate saw last, and when it saw it change.
///
/// Only this machine's own clock counts: the times in a Lease are another machine's, and clocks differ.
#[derive(Debug, Default)]
pub(super) struct Observation {
    record: Option<(LeaseSpec, Instant)>,
}

/// What a candidate does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is ours, or free, or the holder has been silent for too long: write our name.
    Write,
    /// Somebody else holds it.
    Wait,
}

impl Observation {
    /// Takes in what the Lease says now.
    pub(super) fn see(&mut self, lease: &Lease, now: Instant) {
        let spec = lease.spec.clone().unwrap_or_default();
        if self.record.as_ref().is_none_or(|(seen, _)| *seen != spec) {
            self.record = Some((spec, now));
        }
    }

    /// What `identity` does next.
    pub(super) fn step(&self, identity: &str, now: Instant) -> Step {
        let Some((spec, changed)) = &self.record else { return Step::Write };
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let lasts =
            Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default());
        if holder.is_empty() || holder == identity || *changed + lasts < now { Step::Write } else { Step::Wait }
    }
}

/// The Lease with our name in it; everything that is not about holding it stays as it is.
pub(super) fn held(lease: &Lease, identity: &str, duration: Duration, now: Timestamp) -> Lease {
    let old = lease.spec.clone().unwrap_or_default();
    let is_renewal = old.holder_identity.as_deref() == Some(identity);
    let spec = LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: if is_renewal { old.acquire_time } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(
            old.lease_transitions.unwrap_or_default() + i32::from(!is_renewal && old.holder_identity.is_some()),
        ),
        ..old
    };
    Lease { spec: Some(spec), ..lease.clone() }
}

/// The Lease without a holder, lasting one second, so that the next candidate need not wait.
pub(super) fn released(lease: &Lease, now: Timestamp) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        ..lease.spec.clone().unwrap_or_default()
    };
    Lease { spec: Some(spec), ..lease.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(15);

    fn lease(holder: &str, renewal: i64) -> Lease {
        let empty = Lease::default();
        held(&empty, holder, LASTS, Timestamp::from_second(renewal).expect("a time"))
    }

    #[test]
    fn a_lease_is_taken_only_after_its_holder_was_silent_for_its_whole_length_on_our_clock() {
        let (mut observation, start) = (Observation::default(), Instant::now());
        assert_eq!(observation.step("us", start), Step::Write);
        // Times in it that are long past mean a wrong clock elsewhere, not an expired lease.
        observation.see(&lease("them", 0), start);
        assert_eq!(observation.step("us", start + LASTS), Step::Wait);
        assert_eq!(observation.step("us", start + LASTS + Duration::from_millis(1)), Step::Write);
        let renewed = start + Duration::from_secs(14);
        observation.see(&lease("them", 1), renewed);
        assert_eq!(observation.step("us", start + LASTS * 2 - Duration::from_secs(2)), Step::Wait);
        observation.see(&lease("them", 1), renewed + LASTS);
        assert_eq!(observation.step("us", renewed + LASTS + Duration::from_millis(1)), Step::Write);
    }

    #[test]
    fn ours_and_free_ones_are_written_at_once() {
        for holder in ["us", ""] {
            let (mut observation, now) = (Observation::default(), Instant::now());
            observation.see(&lease(holder, 0), now);
            assert_eq!(observation.step("us", now), Step::Write);
        }
    }

    #[test]
    fn transitions_count_and_labels_stay() {
        let mut first = lease("them", 0);
        first.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
        let now = Timestamp::from_second(9).expect("a time");
        let taken = held(&first, "us", LASTS, now);
        let renewed = held(&taken, "us", LASTS, Timestamp::from_second(11).expect("a time"));
        let spec = renewed.spec.clone().expect("a spec");
        assert_eq!((spec.lease_transitions, spec.acquire_time), (Some(1), Some(MicroTime(now))));
        assert_eq!(renewed.metadata.labels, first.metadata.labels);
        let free = released(&renewed, now).spec.expect("a spec");
        assert_eq!((free.holder_identity.as_deref(), free.lease_duration_seconds), (Some(""), Some(1)));
    }
}

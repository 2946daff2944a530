//! When an object runs next: after a verification of all its paths, and after failures.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use jiff::Timestamp;
use konverge_core::{backoff::Backoff, error::ErrorClass};
use konverge_runtime::Action;
use tokio::time::Instant;

use crate::{object::ObjectRef, spec::PushSpec};

/// The pause after a refusal that nothing in this cluster can end, such as a path that belongs to an owner in another cluster.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_mins(5);

/// A look takes less than this, as a rule.
const LOOKED: Duration = Duration::from_secs(1);

/// The pauses while Vault or the API server does not do its part. When Vault serves again, all objects that wait are woken.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), factor: 2.0, cap: Duration::from_mins(1) };

/// The longest pause after a refusal that somebody has to mend, without the quarter that it is stretched by at most. Each refusal in a row makes
/// the pause longer, because many may be refused. Nothing tells when the refusal is over, so it ends between one and two minutes.
const REFUSED_AT_MOST: Duration = Duration::from_secs(96);

/// A moment at which all paths were in sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The versions of the Secrets that it was made of. A missing Secret has none.
    pub sources: BTreeMap<String, Option<String>>,
    /// Whether each path that can bear the mark of its owner bears it. Otherwise a later run tries again.
    pub marked: bool,
    /// The request to compare now that this answers.
    pub sync_now: Option<String>,
    /// When Vault was read.
    pub looked: Instant,
    /// The time at which Vault deletes one of the versions because of `delete_version_after`.
    pub expires: Option<Timestamp>,
    /// The locations that another object with keys there has read later, each with the time.
    pub seen: BTreeMap<String, Instant>,
}

impl Verified {
    /// Returns when the location was last found in sync.
    pub fn seen(&self, location: &str) -> Instant {
        self.seen.get(location).copied().unwrap_or(self.looked)
    }

    /// Notes when each location was verified. The oldest verification counts for the whole object.
    pub fn see(&mut self, mut seen: BTreeMap<String, Instant>, now: Instant) {
        self.looked = seen.values().min().copied().unwrap_or(now);
        seen.retain(|_, at| *at > self.looked);
        self.seen = seen;
    }

    /// Whether it is time to look into Vault although nothing changed here.
    pub(crate) fn is_due(&self, key: &ObjectRef, spec: &PushSpec) -> bool {
        spec.always || self.is_expired() || self.pause(key, spec).is_some_and(|pause| self.looked.elapsed() >= pause)
    }

    /// Returns `true` if Vault may have deleted one of the versions because of `delete_version_after`.
    pub(crate) fn is_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= Timestamp::now())
    }

    /// When the object in sync runs again.
    pub(crate) fn next_look(&self, key: &ObjectRef, spec: &PushSpec) -> Action {
        let rest =
            |expires: Timestamp| Duration::try_from(expires.duration_since(Timestamp::now())).unwrap_or_default();
        // A little late, so that it is deleted by then.
        let until_expired = self.expires.map(|expires| rest(expires) + LOOKED);
        match (self.next_regular_look(key, spec), until_expired) {
            (Action::After(pause), Some(rest)) => Action::After(pause.min(rest)),
            (_, Some(rest)) => Action::After(rest),
            (action, None) => action,
        }
    }

    fn next_regular_look(&self, key: &ObjectRef, spec: &PushSpec) -> Action {
        match self.pause(key, spec) {
            Some(pause) => Action::After(match pause.saturating_sub(self.looked.elapsed()) {
                // It was due. By then another object's drift check has finished.
                Duration::ZERO => LOOKED,
                // A little late, so that it is due when it comes.
                rest => rest + Duration::from_millis(10),
            }),
            None => Action::Done,
        }
    }

    /// The pause between drift checks. `None` means never. A path that could not be marked is tried again.
    fn pause(&self, key: &ObjectRef, spec: &PushSpec) -> Option<Duration> {
        if self.marked { spec.every.map(|every| spread(key, every)) } else { Some(look_again(spec)) }
    }
}

/// Returns the earlier of two times.
pub(crate) fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// The failed runs of an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailureCount {
    /// Failed runs in a row.
    pub in_a_row: u32,
    /// The last failures in a row that were refusals, since the object or a Secret of it changed. Nothing tells when a refusal is over.
    pub refusals: u32,
}

impl FailureCount {
    /// The count after one more failure.
    #[must_use]
    pub fn after(self, is_refusal: bool) -> Self {
        let refusals = if is_refusal { self.refusals.saturating_add(1) } else { 0 };
        Self { in_a_row: self.in_a_row.saturating_add(1), refusals }
    }

    /// The pause after a failure of this class, which is counted already.
    pub(crate) fn pause(self, class: ErrorClass) -> Duration {
        let Self { in_a_row, refusals } = self;
        match class {
            ErrorClass::Permanent => LOOK_AGAIN,
            ErrorClass::After(pause) => {
                let cap = if refusals > 0 { REFUSED_AT_MOST.max(pause) } else { pause };
                let pause = Backoff { base: pause, cap, ..BACKOFF }.delay(refusals, 1.0);
                // Not all at once.
                pause + pause.mul_f64(rand::random::<f64>() / 4.0)
            }
            _ if refusals > 0 => Backoff { cap: 2 * BACKOFF.cap, ..BACKOFF }.late_delay(refusals, rand::random()),
            _ => BACKOFF.delay(in_a_row, rand::random()),
        }
    }
}

/// An interval of the object's own, up to a tenth longer: those that began together do not come together for ever.
fn spread(key: &ObjectRef, every: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    every + every / 10_000 * u32::try_from(hasher.finish() % 1_000).unwrap_or_default()
}

/// The pause of an object that cannot be synced. The object's interval limits it, because its other paths are compared in it.
pub(crate) fn look_again(spec: &PushSpec) -> Duration {
    spec.every.map_or(LOOK_AGAIN, |every| every.min(LOOK_AGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;

    #[test]
    fn intervals_are_stretched_never_shortened_and_each_objects_in_its_own_way() {
        let every = Duration::from_mins(5);
        let spans: Vec<Duration> = (0..100)
            .map(|number| {
                let name = format!("db-{number}");
                spread(&ObjectRef { kind: Kind::Secret, namespace: "shop".to_owned(), name }, every)
            })
            .collect();
        assert!(spans.iter().all(|span| (every..=every.mul_f64(1.1)).contains(span)), "{spans:?}");
        let first = spans.iter().filter(|span| **span < every.mul_f64(1.05)).count();
        assert!((20..=80).contains(&first), "{first} of 100 in the first half");
        let again = ObjectRef { kind: Kind::Secret, namespace: "shop".to_owned(), name: "db-0".to_owned() };
        assert_eq!(spread(&again, every), spans[0], "always the same");
    }

    #[test]
    fn what_is_refused_is_asked_less_and_less_and_a_pause_that_was_asked_for_is_kept_to() {
        let refused = ErrorClass::After(Duration::from_secs(30));
        for (class, in_a_row, refusals, least, most) in [
            (refused, 1, 1, 30, 38),
            (refused, 2, 2, 60, 75),
            (refused, 3, 3, 96, 120),
            (refused, 5, 5, 96, 120),
            (refused, 9, 9, 96, 120),
            (refused, 9, 0, 30, 38),
            (ErrorClass::After(Duration::from_mins(20)), 9, 9, 1200, 1500),
            (ErrorClass::Transient, 1, 1, 0, 1),
            (ErrorClass::Transient, 20, 20, 60, 120),
            (ErrorClass::Transient, 20, 0, 6, 60),
            (ErrorClass::Permanent, 9, 0, 300, 300),
            (ErrorClass::Refused, 1, 1, 0, 1),
            (ErrorClass::Refused, 20, 20, 60, 120),
            // The object or a Secret of it has changed since the refusals before.
            (ErrorClass::Refused, 20, 1, 0, 1),
        ] {
            let pause = FailureCount { in_a_row, refusals }.pause(class);
            let limits = Duration::from_secs(least)..=Duration::from_secs(most);
            assert!(limits.contains(&pause), "{class:?} {in_a_row} {refusals}: {pause:?}");
        }
    }
}

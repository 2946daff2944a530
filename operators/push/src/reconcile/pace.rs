//! The pause before the next run of an object, in sync or not.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use konverge_core::{backoff::Backoff, error::ErrorClass};
use konverge_runtime::Action;

use crate::{
    bindings::{Binding, FailureCount, Push, Verified},
    object::ObjectRef,
};

/// The pause after a refusal that nothing in this cluster can end, such as a path that belongs to an owner in another cluster.
pub(super) const LOOK_AGAIN: Duration = Duration::from_mins(5);

/// A look takes less than this, as a rule.
const LOOKED: Duration = Duration::from_secs(1);

/// The pauses while Vault or the API server does not do its part. When Vault serves again, all objects that wait are woken.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), factor: 2.0, cap: Duration::from_mins(1) };

/// The pause after the record of an object was not written, because the object has changed since the watch showed it. The watch mostly shows the
/// change within milliseconds.
pub(super) const OUTDATED_AGAIN: Duration = Duration::from_millis(250);

/// The longest pause after a refusal that somebody has to mend, without the quarter that it is stretched by at most. Each refusal in a row makes
/// the pause longer, because many may be refused. Nothing tells when the refusal is over, so it ends between one and two minutes.
const REFUSED_AT_MOST: Duration = Duration::from_secs(96);

/// How long a run may take that has thousands of paths.
const RUN: Duration = Duration::from_mins(10);

/// How long one run may take. A request to Vault that is not answered ends before, so that the run can tell of it and go on elsewhere.
pub(crate) fn run_limit(vault_timeout: Duration) -> Duration {
    RUN.max(vault_timeout.saturating_mul(2))
}

/// The pause after a failure of this class.
pub(super) fn pause(class: ErrorClass, failures: FailureCount) -> Duration {
    let FailureCount { in_a_row, refusals } = failures;
    match class {
        ErrorClass::Permanent => LOOK_AGAIN,
        ErrorClass::After(pause) => {
            let cap = if refusals > 0 { REFUSED_AT_MOST.max(pause) } else { pause };
            let pause = Backoff { base: pause, cap, ..BACKOFF }.delay(refusals, 1.0);
            // Not all at once.
            pause + pause.mul_f64(rand::random::<f64>() / 4.0)
        }
        _ if refusals > 0 || class == ErrorClass::Refused => {
            Backoff { cap: 2 * BACKOFF.cap, ..BACKOFF }.late_delay(in_a_row, rand::random())
        }
        _ => BACKOFF.delay(in_a_row, rand::random()),
    }
}

/// Whether it is time to look into Vault although nothing changed here.
pub(super) fn is_due(key: &ObjectRef, push: &Push, binding: &Binding) -> bool {
    let Some(verified) = &binding.verified else { return true };
    push.spec.always || pause_between(key, push, verified).is_some_and(|pause| verified.looked.elapsed() >= pause)
}

/// When an object in sync runs again.
pub(super) fn next_look(key: &ObjectRef, push: &Push, verified: &Verified) -> Action {
    match pause_between(key, push, verified) {
        Some(pause) => Action::After(match pause.saturating_sub(verified.looked.elapsed()) {
            // It was due. By then another object's drift check has finished.
            Duration::ZERO => LOOKED,
            // A little late, so that it is due when it comes.
            rest => rest + Duration::from_millis(10),
        }),
        None => Action::Done,
    }
}

/// The pause between drift checks. `None` means never. A path that could not be marked is tried again.
fn pause_between(key: &ObjectRef, push: &Push, verified: &Verified) -> Option<Duration> {
    if verified.marked { push.spec.every.map(|every| spread(key, every)) } else { Some(look_again(push)) }
}

/// An interval of the object's own, up to a tenth longer: those that began together do not come together for ever.
fn spread(key: &ObjectRef, every: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    every + every / 10_000 * u32::try_from(hasher.finish() % 1_000).unwrap_or_default()
}

/// The pause of an object that cannot be synced. The object's interval limits it, because its other paths are compared in it.
pub(super) fn look_again(push: &Push) -> Duration {
    push.spec.every.map_or(LOOK_AGAIN, |every| every.min(LOOK_AGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;

    #[test]
    fn a_run_outlasts_a_request_that_is_not_answered() {
        for timeout in [Duration::from_secs(1), Duration::from_mins(1), Duration::from_mins(30), Duration::MAX / 2] {
            assert!(run_limit(timeout) > timeout && run_limit(timeout) >= RUN, "{timeout:?}");
        }
    }

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
            (ErrorClass::Refused, 1, 0, 0, 1),
            (ErrorClass::Refused, 20, 0, 60, 120),
        ] {
            let pause = pause(class, FailureCount { in_a_row, refusals });
            let limits = Duration::from_secs(least)..=Duration::from_secs(most);
            assert!(limits.contains(&pause), "{class:?} {in_a_row} {refusals}: {pause:?}");
        }
    }
}

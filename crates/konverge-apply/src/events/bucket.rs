//! How many events one object may have.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ObjectReference;

/// Events that an object may have at once, and how long until it may have one more: the limits of client-go's spam filter.
pub(super) const BURST: u32 = 25;
pub(super) const REFILL: Duration = Duration::from_secs(300);
/// Objects remembered before those that have rested long enough are forgotten.
const REMEMBERED: usize = 4096;

/// One token bucket per object.
#[derive(Default)]
pub(super) struct Buckets(HashMap<String, Bucket>);

struct Bucket {
    /// When it would be full again.
    full_at: Instant,
    /// Whether an event was refused since the last one that was allowed.
    has_refused: bool,
}

/// Whether an object may have one more event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// Refused, as the first one since an event was allowed.
    FirstRefused,
    Refused,
}

impl Buckets {
    /// Takes one event of the object, if it may have one more now.
    pub(super) fn take(&mut self, regarding: &ObjectReference, now: Instant) -> Verdict {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, bucket| bucket.full_at > now);
        }
        let bucket = self.0.entry(key(regarding)).or_insert(Bucket { full_at: now, has_refused: false });
        let next = bucket.full_at.max(now) + REFILL;
        if next <= now + REFILL * BURST {
            *bucket = Bucket { full_at: next, has_refused: false };
            Verdict::Allowed
        } else if std::mem::replace(&mut bucket.has_refused, true) {
            Verdict::Refused
        } else {
            Verdict::FirstRefused
        }
    }
}

/// The uid where there is one; else what names the object.
fn key(regarding: &ObjectReference) -> String {
    match &regarding.uid {
        Some(uid) => uid.clone(),
        None => {
            [&regarding.kind, &regarding.namespace, &regarding.name].map(|part| part.as_deref().unwrap_or("")).join("/")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Verdict::*, *};

    fn object(uid: &str) -> ObjectReference {
        ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() }
    }

    #[test]
    fn a_burst_passes_then_one_per_five_minutes_and_objects_do_not_share() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let verdicts: Vec<_> = (0..100).map(|_| buckets.take(&object("a"), start)).collect();
        let expected = [[Allowed; 25].as_slice(), &[FirstRefused], &[Refused; 74]].concat();
        assert_eq!(verdicts, expected);
        assert_eq!(buckets.take(&object("b"), start), Allowed);
        for (after, verdict) in [(REFILL / 2, Refused), (REFILL, Allowed), (REFILL, FirstRefused), (REFILL, Refused)] {
            assert_eq!(buckets.take(&object("a"), start + after), verdict, "{after:?}");
        }
    }

    #[test]
    fn memory_stays_bounded() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        for number in 0..REMEMBERED {
            assert_eq!(buckets.take(&object(&number.to_string()), start), Allowed);
        }
        assert_eq!(buckets.take(&object("late"), start + REFILL), Allowed);
        assert_eq!(buckets.0.len(), 1);
    }
}

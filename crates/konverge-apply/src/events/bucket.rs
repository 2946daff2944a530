//! How many events one object may have.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ObjectReference;

/// Events that an object may have at once, and how long until it may have one more: the limits of client-go's spam filter.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);
/// Objects remembered before those that have rested long enough are forgotten.
const REMEMBERED: usize = 4096;

/// One token bucket per object, written down as the moment at which it would be full again.
#[derive(Default)]
pub(super) struct Buckets(HashMap<String, Instant>);

impl Buckets {
    /// Whether the object may have one more event now.
    pub(super) fn take(&mut self, regarding: &ObjectReference, now: Instant) -> bool {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, full_at| *full_at > now);
        }
        let full_at = self.0.entry(key(regarding)).or_insert(now);
        let next = (*full_at).max(now) + REFILL;
        let allowed = next <= now + REFILL * BURST;
        if allowed {
            *full_at = next;
        }
        allowed
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
    use super::*;

    fn object(uid: &str) -> ObjectReference {
        ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() }
    }

    #[test]
    fn a_burst_passes_then_one_per_five_minutes_and_objects_do_not_share() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let passed = (0..100).filter(|_| buckets.take(&object("a"), start)).count();
        assert_eq!(passed, 25);
        assert!(buckets.take(&object("b"), start));
        assert!(!buckets.take(&object("a"), start + REFILL / 2));
        assert!(buckets.take(&object("a"), start + REFILL));
        assert!(!buckets.take(&object("a"), start + REFILL));
    }

    #[test]
    fn memory_stays_bounded() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        for number in 0..REMEMBERED {
            assert!(buckets.take(&object(&number.to_string()), start));
        }
        assert!(buckets.take(&object("late"), start + REFILL));
        assert_eq!(buckets.0.len(), 1);
    }
}

//! Looking at every object again after a long time although nothing happened: a net beneath the watch.
//!
//! Each object has its own moment in each period, by its name. So those that were listed together do not come back together, and
//! nothing is remembered of objects that are at rest.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    time::Duration,
};

use konverge_runtime::{
    Priority, Queue,
    cache::Store,
    object::{Object, ObjectKey},
    queue::PERIODIC,
};
use kube::Resource;
use tokio::time::{Instant, sleep};

use crate::only::Only;

/// Into so many steps a period is divided, each of which looks at the names of all objects.
const STEPS: u32 = 100;

/// Requests a run of each object that the controller is about, once in each period, and drops keys without an object. Never ends.
pub(crate) async fn turns<K: Object>(
    store: Store<K>,
    period: Duration,
    only: Option<Only<K>>,
    queue: Queue<ObjectKey>,
    is_there: impl Fn(&ObjectKey) -> bool,
) {
    // Less is a mistake, and must not become a busy loop.
    let period = period.max(Duration::from_millis(100));
    let begin = Instant::now();
    let mut past = Duration::ZERO;
    loop {
        sleep(period / STEPS).await;
        let now = begin.elapsed();
        let is_ours = |object: &K| only.as_ref().is_none_or(|only| only(object));
        let is_due = |object: &K| is_due(offset(object, period), period, past, now);
        for object in store.list().into_iter().filter(|object| is_due(object) && is_ours(object)) {
            if let Some(key) = ObjectKey::of(&*object) {
                queue.add(key, Priority::Low, PERIODIC);
            }
        }
        past = now;
        // An object that went while something else woke it left its key behind.
        queue.retain(|key| is_there(key));
    }
}

/// When in a period it is this object's turn.
fn offset<K: Resource>(object: &K, period: Duration) -> Duration {
    let meta = object.meta();
    let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one((&meta.namespace, &meta.name));
    // The upper half of the product of a number and a fraction of 2^64.
    let nanoseconds = (u128::from(hash) * period.as_nanos()) >> 64;
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// Whether a turn at this offset in each period came after `past`, and no later than `now`.
fn is_due(offset: Duration, period: Duration, past: Duration, now: Duration) -> bool {
    let turns_until = |moment: Duration| (moment + period).saturating_sub(offset).as_nanos() / period.as_nanos();
    turns_until(now) > turns_until(past)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(100);

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn each_has_one_turn_in_a_period_however_long_a_step_is() {
        for step in [1, 7, 30, 99, 100] {
            for offset in [0, 1, 50, 99] {
                let steps: Vec<_> = (0..=1000 / step).map(|number| seconds(number * step)).collect();
                let is_due = |pair: &&[Duration]| is_due(seconds(offset), PERIOD, pair[0], pair[1]);
                let turns = steps.windows(2).filter(is_due).count();
                assert!((9..=10).contains(&turns), "{turns} turns at {offset} in steps of {step}");
            }
        }
        // A program that was suspended makes up for it once.
        assert!(is_due(seconds(50), PERIOD, seconds(0), seconds(1000)));
    }

    #[test]
    fn turns_are_spread_over_the_period() {
        let mut tenths = [0; 10];
        for number in 0..1000 {
            let mut object = ConfigMap::default();
            object.metadata.name = Some(format!("object-{number}"));
            let offset = offset(&object, PERIOD);
            assert!(offset < PERIOD);
            tenths[usize::try_from(offset.as_secs() / 10).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|count| (60..140).contains(count)), "{tenths:?}");
    }
}

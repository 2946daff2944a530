//! Series whose labels others choose, and no more of them than a scrape can bear.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric},
    metrics::{
        TypedMetric,
        family::{Family, MetricConstructor},
    },
    registry::Registry,
};

/// The most series of one metric. Beyond that, new ones are counted together, so that a scrape stays in the order of a megabyte.
pub(super) const MOST: usize = 1_000;

/// A series that was not touched for this long makes room for a new one. Dashboards show minutes and hours.
const STALE: Duration = Duration::from_hours(1);

/// Labels that name things, and those under which the rest is counted.
pub(super) trait Named: EncodeLabelSet + Clone + Debug + Hash + Ord + Send + Sync + 'static {
    /// The same with `other` wherever a name is.
    fn other(&self) -> Self;
}

/// A family of at most [`MOST`] series and those of `other`. Clones are the same one.
pub(super) struct Bounded<L, M, C = fn() -> M> {
    family: Family<L, M, C>,
    /// When each was last touched.
    known: Arc<Mutex<BTreeMap<L, Instant>>>,
}

impl<L, M, C: Clone> Clone for Bounded<L, M, C> {
    fn clone(&self) -> Self {
        Self { family: self.family.clone(), known: Arc::clone(&self.known) }
    }
}

impl<L, M, C> Bounded<L, M, C>
where
    L: Named,
    M: EncodeMetric + TypedMetric + Debug + Clone + Send + Sync + 'static,
    C: MetricConstructor<M> + Clone + Send + Sync + 'static,
{
    pub(super) fn new(constructor: C) -> Self
    where
        C: Debug,
    {
        Self { family: Family::new_with_constructor(constructor), known: Arc::default() }
    }

    pub(super) fn register(&self, registry: &mut Registry, name: &str, help: &str)
    where
        C: Debug,
    {
        registry.register(name, help, self.family.clone());
    }

    /// The series of these labels, or that of `other`.
    pub(super) fn series(&self, labels: L) -> M {
        self.series_at(labels, Instant::now())
    }

    fn series_at(&self, labels: L, now: Instant) -> M {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(&labels) {
            let family = &self.family;
            known.retain(|labels, touched| {
                let fresh = now.saturating_duration_since(*touched) < STALE;
                if !fresh {
                    family.remove(labels);
                }
                fresh
            });
        }
        if known.len() >= MOST && !known.contains_key(&labels) {
            return self.family.get_or_create_owned(&labels.other());
        }
        let series = self.family.get_or_create_owned(&labels);
        known.insert(labels, now);
        series
    }

    /// Takes away the series whose labels name what is gone.
    pub(super) fn forget(&self, is_gone: impl Fn(&L) -> bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|labels, _| {
            let gone = is_gone(labels);
            if gone {
                self.family.remove(labels);
            }
            !gone
        });
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
    struct Label {
        name: String,
    }

    impl Named for Label {
        fn other(&self) -> Self {
            label("other")
        }
    }

    fn label(name: &str) -> Label {
        Label { name: name.to_owned() }
    }

    #[test]
    fn beyond_the_bound_all_is_counted_together_until_there_is_room() {
        let bounded = Bounded::<Label, Counter>::new(Counter::default);
        let begun = Instant::now();
        for number in 0..MOST + 5 {
            bounded.series_at(label(&number.to_string()), begun).inc();
        }
        let has = |name: &str| bounded.family.get(&label(name)).is_some();
        assert!(has(&(MOST - 1).to_string()) && !has(&MOST.to_string()));
        assert_eq!(bounded.series_at(label("new"), begun).get(), 5, "it is that of other");
        assert_eq!(bounded.series_at(label("0"), begun + STALE).inc(), 1, "what is known stays");

        bounded.forget(|labels| labels.name == "1");
        bounded.series_at(label("new"), begun + STALE / 2).inc();
        assert!(has("new") && !has("1"), "room was made");

        bounded.series_at(label("newer"), begun + STALE).inc();
        let mut left: Vec<_> = bounded.known.lock().unwrap().keys().map(|label| label.name.clone()).collect();
        left.sort();
        assert_eq!(left, ["0", "new", "newer"], "what nobody touched made room");
        assert!(has("0") && has("other") && !has("2"));
    }
}

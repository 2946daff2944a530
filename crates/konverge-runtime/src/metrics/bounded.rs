//! A family of series whose labels users choose, such as names of objects, with a bound on their number.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{
        MetricType, TypedMetric,
        family::{Family, MetricConstructor},
    },
};

/// The most series of one family, besides those of `other`. Beyond that, new ones are counted together, so that a scrape stays in the order of a
/// megabyte.
pub const MOST_SERIES: usize = 1_000;

/// A series that was not touched for this long makes room for a new one. Dashboards show minutes and hours.
const STALE: Duration = Duration::from_secs(3600);

/// Labels that contain names, and the labels under which the series beyond the bound are counted.
pub trait NameLabels: EncodeLabelSet + Clone + Debug + Hash + Ord + Send + Sync + 'static {
    /// Returns the labels with `other` in place of each name.
    #[must_use]
    fn other(&self) -> Self;
}

/// A metric: a family of at most [`MOST_SERIES`] series and those of [`NameLabels::other`]. A series that nobody touched for an hour makes room for a new one.
/// Clones are handles to the same family.
#[derive(Debug)]
pub struct BoundedFamily<L, M, C = fn() -> M> {
    family: Family<L, M, C>,
    /// When each series was last touched.
    known: Arc<Mutex<BTreeMap<L, Instant>>>,
}

impl<L, M, C: Clone> Clone for BoundedFamily<L, M, C> {
    fn clone(&self) -> Self {
        Self { family: self.family.clone(), known: Arc::clone(&self.known) }
    }
}

impl<L, M> Default for BoundedFamily<L, M>
where
    L: NameLabels,
    M: EncodeMetric + TypedMetric + Debug + Clone + Default + Send + Sync + 'static,
{
    fn default() -> Self {
        Self::new(M::default)
    }
}

impl<L, M, C> EncodeMetric for BoundedFamily<L, M, C>
where
    Family<L, M, C>: EncodeMetric,
{
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.family.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.family.metric_type()
    }

    fn is_empty(&self) -> bool {
        EncodeMetric::is_empty(&self.family)
    }
}

impl<L, M, C> BoundedFamily<L, M, C>
where
    L: NameLabels,
    M: EncodeMetric + TypedMetric + Debug + Clone + Send + Sync + 'static,
    C: MetricConstructor<M> + Clone + Send + Sync + 'static,
{
    /// Makes a family without series. `constructor` makes the metric of a new one.
    pub fn new(constructor: C) -> Self {
        Self { family: Family::new_with_constructor(constructor), known: Arc::default() }
    }

    /// Returns the series of these labels, or that of [`NameLabels::other`] if there is no room.
    pub fn series(&self, labels: L) -> M {
        self.series_at(labels, Instant::now())
    }

    fn series_at(&self, labels: L, now: Instant) -> M {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_SERIES && !known.contains_key(&labels) {
            let family = &self.family;
            known.retain(|labels, touched| {
                let fresh = now.saturating_duration_since(*touched) < STALE;
                if !fresh {
                    family.remove(labels);
                }
                fresh
            });
        }
        if known.len() >= MOST_SERIES && !known.contains_key(&labels) {
            return self.family.get_or_create_owned(&labels.other());
        }
        let series = self.family.get_or_create_owned(&labels);
        known.insert(labels, now);
        series
    }

    /// Removes the series whose labels name an object that is gone.
    pub fn forget(&self, is_gone: impl Fn(&L) -> bool) {
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

    impl NameLabels for Label {
        fn other(&self) -> Self {
            label("other")
        }
    }

    fn label(name: &str) -> Label {
        Label { name: name.to_owned() }
    }

    #[test]
    fn beyond_the_bound_all_is_counted_together_until_there_is_room() {
        let bounded = BoundedFamily::<Label, Counter>::new(Counter::default);
        let begun = Instant::now();
        for number in 0..MOST_SERIES + 5 {
            bounded.series_at(label(&number.to_string()), begun).inc();
        }
        let has = |name: &str| bounded.family.get(&label(name)).is_some();
        assert!(has(&(MOST_SERIES - 1).to_string()) && !has(&MOST_SERIES.to_string()));
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

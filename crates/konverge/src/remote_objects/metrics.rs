//! The series of all collections of items on servers.

use std::sync::atomic::{AtomicU64, Ordering};

use konverge_remote::Figures;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Series of all collections of a process. Clones are handles to the same ones.
#[derive(Clone, Default)]
pub(crate) struct RemoteMetrics {
    ages: Family<List, Gauge<f64, AtomicU64>>,
    writes: Family<Write, Counter>,
    drift_found: Family<Collection, Counter>,
    drift_corrected: Family<Collection, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Collection {
    collection: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct List {
    collection: &'static str,
    /// Empty if there is only one account.
    scope: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    collection: &'static str,
    write: &'static str,
}

impl RemoteMetrics {
    /// Makes the series and puts them into the registry. Once per registry.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register(
            "konverge_remote_list_age_seconds",
            "Time since the last list of a collection on the server was asked for",
            this.ages.clone(),
        );
        registry.register(
            "konverge_remote_writes",
            "Items on the server that were created, updated or deleted",
            this.writes.clone(),
        );
        registry.register(
            "konverge_remote_drift_found",
            "Times that somebody else had changed or deleted the item of an object",
            this.drift_found.clone(),
        );
        registry.register(
            "konverge_remote_drift_corrected",
            "Times that an item which somebody else had changed or deleted was corrected",
            this.drift_corrected.clone(),
        );
        this
    }

    /// Takes over the figures of a collection.
    pub(crate) fn show(&self, collection: &'static str, figures: &Figures) {
        for (scope, age) in &figures.list_ages {
            self.ages.get_or_create(&List { collection, scope: scope.clone() }).set(age.as_secs_f64());
        }
        let writes = [("create", figures.created), ("update", figures.updated), ("delete", figures.deleted)];
        for (write, count) in writes {
            set(&self.writes.get_or_create(&Write { collection, write }), count);
        }
        set(&self.drift_found.get_or_create(&Collection { collection }), figures.drift_found);
        set(&self.drift_corrected.get_or_create(&Collection { collection }), figures.drift_corrected);
    }
}

/// The count comes from where the writes are made, and never falls.
fn set(counter: &Counter, count: u64) {
    counter.inner().store(count, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn figures_become_series_by_collection_and_account() {
        let mut registry = Registry::default();
        let metrics = RemoteMetrics::register(&mut registry);
        let mut figures = Figures::default();
        figures.created = 3;
        figures.drift_found = 2;
        figures.drift_corrected = 1;
        figures.list_ages = [("shop".to_owned(), Duration::from_millis(1500))].into();
        metrics.show("group", &figures);
        metrics.show("group", &figures);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "konverge_remote_list_age_seconds{collection=\"group\",scope=\"shop\"} 1.5",
            "konverge_remote_writes_total{collection=\"group\",write=\"create\"} 3",
            "konverge_remote_writes_total{collection=\"group\",write=\"delete\"} 0",
            "konverge_remote_drift_found_total{collection=\"group\"} 2",
            "konverge_remote_drift_corrected_total{collection=\"group\"} 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
    }
}

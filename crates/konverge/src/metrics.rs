//! Metrics of the controllers' objects, counted at each scrape.

use std::collections::HashMap;

use konverge_runtime::{Metrics, cache::Store, object::Object};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::{annotations::is_paused, report::Status};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Condition {
    controller: String,
    r#type: String,
    status: String,
    reason: String,
}

/// The series about objects. No object is named in a label.
#[derive(Clone, Default)]
pub(crate) struct ObjectMetrics {
    conditions: Family<Condition, Gauge>,
    paused: Family<Controller, Gauge>,
}

impl ObjectMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "konverge_objects_by_condition",
            "Objects by what their conditions say",
            metrics.conditions.clone(),
        );
        registry.register(
            "konverge_paused_objects",
            "Objects that are left alone because of their annotation",
            metrics.paused.clone(),
        );
        metrics
    }
}

/// Counts the objects of a controller before each scrape. `standard` returns the standard part of an object's status, if the kind has one.
pub(crate) fn measure<K: Object>(
    metrics: &Metrics,
    series: &ObjectMetrics,
    controller: &str,
    store: &Store<K>,
    standard: Option<fn(&K) -> Option<&Status>>,
) {
    let (series, controller, store) = (series.clone(), controller.to_owned(), store.clone());
    metrics.before_scrape(move || {
        let objects = store.list();
        let paused = objects.iter().filter(|object| is_paused(&***object));
        let labels = Controller { controller: controller.clone() };
        series.paused.get_or_create(&labels).set(i64::try_from(paused.count()).unwrap_or(i64::MAX));
        let Some(standard) = standard else { return };
        let mut counts: HashMap<Condition, i64> = HashMap::new();
        for condition in
            objects.iter().filter_map(|object| standard(object)).flat_map(|status| status.conditions.iter())
        {
            let labels = Condition {
                controller: controller.clone(),
                r#type: condition.type_.clone(),
                status: condition.status.clone(),
                reason: condition.reason.clone(),
            };
            *counts.entry(labels).or_default() += 1;
        }
        // A series without objects must not stay at its last figure.
        series.conditions.clear();
        for (labels, count) in counts {
            series.conditions.get_or_create(&labels).set(count);
        }
    });
}

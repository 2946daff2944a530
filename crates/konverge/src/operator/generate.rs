//! The files that a program generates from its own declarations.

use konverge_apply::events::EventSink;
use konverge_gen::{
    Files,
    chart::{self, Chart},
    files::FilesError,
    reference,
    watching::{self, Alert, Panel, Series, Watching},
};
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::Operator;
use crate::metrics::ObjectMetrics;

/// Files could not be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// An object cannot be written down.
    #[error("cannot write an object down")]
    Object(#[source] serde_json::Error),
    /// The files cannot be made, written, or are not as they should be.
    #[error(transparent)]
    Files(#[from] FilesError),
}

impl Operator {
    /// Returns all generated files: `crds.yaml`, `role.yaml` for a service account in `namespace`, `others.yaml` with further objects of
    /// its parts, and `reference.md`. For monitoring, there are `dashboard.json` for Grafana and `alerts.yaml` for the Prometheus
    /// operator.
    pub fn generate(&self, namespace: &str) -> Result<Files, GenerateError> {
        let mut files = Files::default();
        let crds = self.crds(namespace);
        if !crds.is_empty() {
            files.objects("crds.yaml", &crds)?;
        }
        files.objects("role.yaml", &self.grant(namespace).objects().map_err(GenerateError::Object)?)?;
        let others = self.others(namespace)?;
        if !others.is_empty() {
            files.objects("others.yaml", &others)?;
        }
        let (table, series) = self.series();
        files.text("reference.md", self.reference(&table));
        let (alerts, panels) = self.watched();
        let watching = Watching::new(self.program, &series).alerts(&alerts).panels(&panels);
        let dashboard = serde_json::to_string_pretty(&watching.dashboard()).map_err(GenerateError::Object)?;
        files.text("dashboard.json", dashboard + "\n");
        files.objects_apart("alerts.yaml", &[watching.prometheus_rule(namespace)])?;
        Ok(files)
    }

    /// The files of a Helm chart: a deployment of the program, and what [`generate`](Self::generate) makes for the cluster.
    pub fn helm_chart(&self) -> Result<Files, GenerateError> {
        let namespace = chart::NAMESPACE;
        let mut chart = Chart::default();
        chart.program = self.program;
        chart.version = self.version;
        chart.crds = self.crds(namespace);
        chart.rbac = self.grant(namespace).objects().map_err(GenerateError::Object)?;
        chart.others = self.others(namespace)?;
        let ((_, series), (alerts, _)) = (self.series(), self.watched());
        chart.alerts = vec![Watching::new(self.program, &series).alerts(&alerts).prometheus_rule(namespace)];
        Ok(chart.files()?)
    }

    fn others(&self, namespace: &str) -> Result<Vec<Value>, GenerateError> {
        let mut others = Vec::new();
        for part in &self.parts {
            others.extend(part.objects(&self.home(namespace)).map_err(GenerateError::Object)?);
        }
        Ok(others)
    }

    /// The alerts and panels of its parts.
    fn watched(&self) -> (Vec<Alert>, Vec<Panel>) {
        let alerts = self.parts.iter().flat_map(|part| part.alerts().iter().copied()).collect();
        (alerts, self.parts.iter().flat_map(|part| part.panels().iter().copied()).collect())
    }

    /// The series that the program has when it runs: a table of them, and their names.
    fn series(&self) -> (String, Series) {
        let (mut table, mut series) = (String::new(), Series::default());
        self.metrics().register(|registry: &mut Registry| {
            (table, series) = (reference::metrics(registry), watching::series(registry));
        });
        (table, series)
    }

    /// The series that the program has when it runs, all without a value.
    fn metrics(&self) -> konverge_runtime::Metrics {
        let metrics = konverge_runtime::Metrics::new(self.program, self.version);
        metrics.register(ObjectMetrics::register);
        metrics.register(EventSink::describe);
        metrics.register(|registry| self.parts.iter().for_each(|part| part.describe(registry)));
        metrics
    }

    fn reference(&self, series: &str) -> String {
        let words = reference::words("Condition", CONDITIONS);
        let of_parts = self.parts.iter().flat_map(|part| part.reasons());
        let reasons: Vec<_> = konverge_core::reasons::ALL.iter().copied().chain(of_parts).collect();
        let reasons = reference::words("Reason", &reasons);
        let annotations = reference::words("Annotation", ANNOTATIONS);
        #[cfg(feature = "cli")]
        let flags = format!("## Flags\n\n{}\n", reference::flags(&self.command()));
        #[cfg(not(feature = "cli"))]
        let flags = "";
        let codes = reference::words("Exit code", crate::exit::CODES);
        format!(
            "<!-- Generated; change the code instead. -->\n# Reference of {}\n\n{flags}## Exit codes\n\n{codes}\n## Conditions\n\n{words}\n\
             ## Reasons\n\nOf conditions, events and `konverge_reconcile_errors_total`, those of the framework and those that the program declares.\n\n{reasons}\n\
             ## Annotations\n\n{annotations}\n## Metrics\n\n{series}",
            self.program
        )
    }
}

const CONDITIONS: &[(&str, &str)] = &[
    ("Ready", "The object is in its desired state, as of the generation in `observedGeneration`"),
    ("Reconciling", "Work goes on, or will be repeated; only present during that time"),
    ("Stalled", "The work cannot succeed until somebody changes something; only present during that time"),
];

const ANNOTATIONS: &[(&str, &str)] = &[
    (crate::annotations::PAUSED, "`true`: the object is left alone, except for its deletion"),
    (crate::annotations::RECONCILE_AT, "With each new value, the object is reconciled at once"),
    (
        konverge_apply::desired::ALLOW_DELETES,
        "How many children one run may delete, where that is more than the budget",
    ),
];

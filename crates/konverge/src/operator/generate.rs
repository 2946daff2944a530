//! The files that a program generates from its own declarations.

use konverge_apply::events::EventSink;
use konverge_gen::{
    Files,
    chart::{self, Chart},
    files::FilesError,
    reference,
    watching::{self, Alert, Inhibition, Panel, Series, Watching},
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

/// The files of [`Operator::generate`].
pub(super) fn files(operator: &Operator, namespace: &str) -> Result<Files, GenerateError> {
    let mut files = Files::default();
    let crds = operator.crds(namespace);
    if !crds.is_empty() {
        files.objects("crds.yaml", &crds)?;
    }
    files.objects("role.yaml", &operator.grant(namespace).objects().map_err(GenerateError::Object)?)?;
    let others = others(operator, namespace)?;
    if !others.is_empty() {
        files.objects("others.yaml", &others)?;
    }
    let (table, series) = series(operator);
    files.text("reference.md", reference_page(operator, &table));
    let watched = Watched::of(operator);
    let watching = watched.watching(operator.program, &series);
    let dashboard = serde_json::to_string_pretty(&watching.dashboard()).map_err(GenerateError::Object)?;
    files.text("dashboard.json", dashboard + "\n");
    files.objects_apart("alerts.yaml", &[watching.prometheus_rule(namespace)])?;
    Ok(files)
}

/// The files of [`Operator::helm_chart`].
pub(super) fn helm_chart(operator: &Operator) -> Result<Files, GenerateError> {
    let namespace = chart::NAMESPACE;
    let mut chart = Chart::default();
    chart.program = operator.program;
    chart.version = operator.version;
    chart.crds = operator.crds(namespace);
    chart.rbac = operator.grant(namespace).objects().map_err(GenerateError::Object)?;
    chart.others = others(operator, namespace)?;
    let ((_, series), watched) = (series(operator), Watched::of(operator));
    chart.alerts = vec![watched.watching(operator.program, &series).prometheus_rule(namespace)];
    Ok(chart.files()?)
}

fn others(operator: &Operator, namespace: &str) -> Result<Vec<Value>, GenerateError> {
    let mut others = Vec::new();
    for part in &operator.parts {
        others.extend(part.objects(&operator.home(namespace)).map_err(GenerateError::Object)?);
    }
    Ok(others)
}

/// The alerts and panels of its parts.
struct Watched {
    alerts: Vec<Alert>,
    inhibitions: Vec<Inhibition>,
    panels: Vec<Panel>,
}

impl Watched {
    fn of(operator: &Operator) -> Self {
        Self {
            alerts: operator.parts.iter().flat_map(|part| part.alerts()).copied().collect(),
            inhibitions: operator.parts.iter().flat_map(|part| part.inhibitions()).copied().collect(),
            panels: operator.parts.iter().flat_map(|part| part.panels()).copied().collect(),
        }
    }

    fn watching<'a>(&'a self, program: &'a str, series: &'a Series) -> Watching<'a> {
        Watching::new(program, series).alerts(&self.alerts).inhibitions(&self.inhibitions).panels(&self.panels)
    }
}

/// The series that the program has when it runs: a table of them, and their names.
fn series(operator: &Operator) -> (String, Series) {
    let (mut table, mut series) = (String::new(), Series::default());
    metrics(operator).register(|registry: &mut Registry| {
        (table, series) = (reference::metrics(registry), watching::series(registry));
    });
    (table, series)
}

/// The series that the program has when it runs, all without a value.
fn metrics(operator: &Operator) -> konverge_runtime::Metrics {
    let metrics = konverge_runtime::Metrics::new(operator.program, operator.version);
    metrics.register(ObjectMetrics::register);
    metrics.register(EventSink::describe);
    metrics.register(|registry| operator.parts.iter().for_each(|part| part.describe(registry)));
    metrics
}

fn reference_page(operator: &Operator, series: &str) -> String {
    let words = reference::glossary("Condition", CONDITIONS);
    let of_parts = operator.parts.iter().flat_map(|part| part.reasons());
    let reasons: Vec<_> = konverge_core::reasons::ALL.iter().copied().chain(of_parts).collect();
    let reasons = reference::glossary("Reason", &reasons);
    let annotations = reference::glossary("Annotation", ANNOTATIONS);
    #[cfg(feature = "cli")]
    let flags = format!("## Flags\n\n{}\n", reference::flags(&super::cli::command(operator)));
    #[cfg(not(feature = "cli"))]
    let flags = "";
    let codes = reference::glossary("Exit code", crate::exit::CODES);
    format!(
        "<!-- Generated; change the code instead. -->\n# Reference of {}\n\n{flags}## Exit codes\n\n{codes}\n## Conditions\n\n{words}\n\
         ## Reasons\n\nOf conditions, events and `konverge_reconcile_errors_total`, those of the framework and those that the program declares.\n\n{reasons}\n\
         ## Annotations\n\n{annotations}\n## Metrics\n\n{series}",
        operator.program
    )
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

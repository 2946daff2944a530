//! Writes definitions, role and webhooks into a folder, or with `--check` fails where they are not as they would be. `cargo xtask generate` runs it. The chart
//! has the dashboard and the alerts.

use std::error::Error;

use clap::Parser;
use konverge::generate::{Files, files::Destination};
use konverge_manage::program;

/// The namespace in the role.
const NAMESPACE: &str = "openzro";

/// For Prometheus, or another reader of the metrics, as beside the roles of the other operators.
const METRICS_READER: &str = "---
# For Prometheus, or another reader of the metrics: bind it to that service account.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: openzro-operator-metrics-reader
rules:
- nonResourceURLs:
  - /metrics
  verbs:
  - get
";

fn main() -> Result<(), Box<dyn Error>> {
    let destination = Destination::parse();
    let all = program::for_manifests()?.generate(NAMESPACE)?;
    let mut files = Files::default();
    // The reference has the flags of the framework's own command line, which this program does not have.
    files.text("crds.yaml", all.get("crds.yaml").unwrap_or_default());
    files.text("role.yaml", format!("{}{METRICS_READER}", all.get("role.yaml").unwrap_or_default()));
    files.text("webhooks.yaml", all.get("others.yaml").unwrap_or_default());
    Ok(destination.put(&files)?)
}

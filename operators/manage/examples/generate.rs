//! Writes definitions, role, webhooks, dashboard and alerts into a folder, or with `--check` fails where they are not as they would be.
//! `cargo xtask generate` runs it.

use std::error::Error;

use clap::Parser;
use konverge::generate::{Files, files::Destination};
use konverge_manage::program;

/// The namespace in the role.
const NAMESPACE: &str = "openzro";

fn main() -> Result<(), Box<dyn Error>> {
    let destination = Destination::parse();
    let all = program::for_manifests()?.generate(NAMESPACE)?;
    let mut files = Files::default();
    // The reference has the flags of the framework's own command line, which this program does not have.
    for name in ["crds.yaml", "role.yaml", "dashboard.json", "alerts.yaml"] {
        files.text(name, all.get(name).unwrap_or_default());
    }
    files.text("webhooks.yaml", all.get("others.yaml").unwrap_or_default());
    Ok(destination.put(&files)?)
}

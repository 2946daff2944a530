//! Renders the plain manifests in `deploy/` from the chart `deploy/charts/konverge`. With `--check` it writes nothing, and fails if a file differs.
//! `cargo xtask generate` runs it.

mod all_in_one;
mod chart;
mod document;
#[path = "../../../../crates/konverge/tests/helm/mod.rs"]
mod helm;
mod shipped;

use std::error::Error;

use clap::Parser;
use konverge_gen::{Files, files::Destination};

use chart::Chart;

/// The end of the comment at the head of each file.
const ORIGIN: &str = "Rendered from the chart deploy/charts/konverge. Change the chart and run `cargo xtask generate`.";

fn main() -> Result<(), Box<dyn Error>> {
    let destination = Destination::parse();
    let chart = Chart::new(helm::helm()?);
    let mut files = Files::default();
    for manifest in &shipped::MANIFESTS {
        let documents = manifest.documents(&chart)?;
        files.text(manifest.file, headed(manifest.about, &documents));
    }
    files.text(all_in_one::FILE, headed(all_in_one::ABOUT, &[all_in_one::document(&chart)?]));
    Ok(destination.put(&files)?)
}

/// Returns the text of a file: the comment, and the documents beneath it.
fn headed(about: &str, documents: &[String]) -> String {
    let lines = about.lines().chain(["", ORIGIN]);
    let comment = lines.fold(String::new(), |text, line| text + format!("# {line}").trim_end() + "\n");
    comment + &documents.join("---\n")
}

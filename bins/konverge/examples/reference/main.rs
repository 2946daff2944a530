//! Writes the generated pages of the docs into a folder: annotations, custom resources, flags, reasons, metrics, alerts, roles and
//! policies for Vault. With `--check` it writes nothing, and fails if a page differs. `cargo xtask generate` runs it.

mod framework;
#[path = "../chart/manage.rs"]
mod manage;
mod pages;
#[expect(dead_code, reason = "the shipped policies are files of their own")]
mod policies;
mod resources;
#[path = "../chart/uses.rs"]
mod uses;
#[path = "../chart/watched.rs"]
#[expect(dead_code, reason = "the names of files are for the chart")]
mod watched;

use std::error::Error;

use clap::Parser;
use konverge_gen::{Files, files::Destination};

// The command line of this package's own program.
#[path = "../../src/main.rs"]
#[expect(dead_code, reason = "only its command line is used, not its main")]
mod program;

fn main() -> Result<(), Box<dyn Error>> {
    let destination = Destination::parse();
    let of_manage = manage::generated()?;
    let mut files = Files::default();
    files.text("annotations.md", pages::annotations());
    files.text("flags.md", pages::flags());
    files.text("kubectl-commands.md", pages::kubectl());
    files.text("zopp.md", pages::zopp());
    files.text("reasons.md", pages::reasons()?);
    files.text("metrics.md", pages::metrics(&of_manage)?);
    files.text("alerts.md", pages::alerts(&of_manage)?);
    files.text("custom-resources.md", resources::page()?);
    files.text("roles.md", pages::roles()?);
    files.text("vault-policies.md", policies::page());
    Ok(destination.put(&files)?)
}

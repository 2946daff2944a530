//! Writes the definition of `VaultPush` into a folder, or with `--check` fails where it is not as it would be. `cargo xtask generate` runs it.

use std::{error::Error, path::PathBuf};

use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_gen::{Files, remove_unknown_formats};
use konverge_push::vault_push;

#[derive(Parser)]
struct Arguments {
    /// The folder
    #[arg(long)]
    into: PathBuf,
    /// Write nothing and fail if something would change
    #[arg(long)]
    check: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut files = Files::default();
    files.objects("vaultpushes.yaml", &[applicable(vault_push::definition())])?;
    let done = if arguments.check { files.check(&arguments.into) } else { files.write(&arguments.into) };
    Ok(done?)
}

/// The definition without the formats that make the API server warn.
fn applicable(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    remove_unknown_formats(&mut definition);
    definition
}

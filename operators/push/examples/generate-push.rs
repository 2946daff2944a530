//! Writes the definition of `VaultPush` into a folder, or with `--check` fails where it is not as it would be. `cargo xtask generate` runs it.

use std::error::Error;

use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_gen::{Files, files::Destination, remove_unknown_formats};
use konverge_push::vault_push;

fn main() -> Result<(), Box<dyn Error>> {
    let destination = Destination::parse();
    let mut files = Files::default();
    files.objects("vaultpushes.yaml", &[applicable(vault_push::definition())])?;
    Ok(destination.put(&files)?)
}

/// The definition without the formats that make the API server warn.
fn applicable(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    remove_unknown_formats(&mut definition);
    definition
}

//! Writes the definitions of pull's kinds into a folder, or with `--check` fails where one is not as it would be. `cargo xtask generate` runs it.

use std::error::Error;

use clap::Parser;
use konverge_gen::{Files, files::Destination, remove_unknown_formats};
use konverge_pull::objects;

fn main() -> Result<(), Box<dyn Error>> {
    let destination = Destination::parse();
    let mut files = Files::default();
    for (name, mut definition) in objects::definitions() {
        remove_unknown_formats(&mut definition);
        files.objects(format!("{name}.yaml"), &[definition])?;
    }
    Ok(destination.put(&files)?)
}

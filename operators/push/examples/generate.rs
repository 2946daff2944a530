//! Writes the definition of `VaultPush` into a folder, or with `--check` fails where it is not as it would be. `cargo xtask generate` runs it.

use std::{error::Error, path::PathBuf};

use clap::Parser;
use konverge_gen::Files;
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
    files.objects("vaultpushes.yaml", &[vault_push::definition()])?;
    let done = if arguments.check { files.check(&arguments.into) } else { files.write(&arguments.into) };
    Ok(done?)
}

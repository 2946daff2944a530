//! Writes the definitions of roll's own kinds into a folder, or with `--check` fails where one is not as it would be. `cargo xtask generate`
//! runs it.

use std::{error::Error, path::PathBuf};

use clap::Parser;
use konverge_gen::Files;
use konverge_roll::{vault_rollout, vault_sync_status};

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
    files.objects("vaultrollouts.yaml", &[vault_rollout::definition()])?;
    files.objects("vaultsyncstatus.yaml", &[vault_sync_status::definition()])?;
    let done = if arguments.check { files.check(&arguments.into) } else { files.write(&arguments.into) };
    Ok(done?)
}

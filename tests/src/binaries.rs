//! Our own programs, beside the one that runs.

use std::{env, path::PathBuf};

use anyhow::{Context, Result, bail};

/// The path of one of our programs: beside this one, or one folder up, since tests are in `deps`.
pub fn binary(name: &str) -> Result<PathBuf> {
    let this = env::current_exe().context("cannot find the running program")?;
    let found = this.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    match found {
        Some(path) => Ok(path),
        None => bail!("there is no {name} beside {}; build it: cargo build --workspace --bins", this.display()),
    }
}

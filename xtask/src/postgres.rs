//! The PostgreSQL that tests of zopp-server start. It comes from the system's packages.

use std::{path::Path, process::Command};

use anyhow::{Result, bail};

use crate::{
    postgres_programs::{INSTALL, find},
    step::{run, step},
};

/// Installs PostgreSQL if it is missing and the system is one whose packages are known.
pub(crate) fn setup() -> Result<()> {
    if find().is_err() && Path::new("/usr/bin/apt-get").exists() {
        let mut install = Command::new("sh");
        // A clean machine has no list of packages yet.
        install.args(["-c", &format!("{INSTALL} || (apt-get update && {INSTALL})")]);
        run("PostgreSQL from the system's packages", install, "Installing takes root.")?;
    }
    step("PostgreSQL", "Then run the command again.", || match find() {
        Ok(programs) => {
            eprintln!("{}", programs.display());
            Ok(())
        }
        Err(missing) => bail!("{missing}"),
    })
}

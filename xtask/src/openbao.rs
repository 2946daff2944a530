//! The tests that talk to Vault, with an OpenBao in its place. Not a part of CI, because it takes long to build.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{
    environment, recipes,
    step::{program, step},
    testing::{PROGRAMS_AT_ONCE, Tests},
};

/// Names an OpenBao to use instead of building one; the test kit reads it, too.
const BAO_VARIABLE: &str = "BAO_BIN";

/// The variable that the test kit prefers.
const VAULT_VARIABLE: &str = "VAULT_BIN";

/// The packages whose tests start only a Vault, and no program of ours.
const PACKAGES: [&str; 5] = [
    "konverge-vault",
    "konverge-push",
    "konverge-roll",
    "konverge-vault-sync-operator",
    "konverge-vault-rollout-operator",
];

pub(crate) fn test(filter: Option<&str>) -> Result<()> {
    let test_stores = recipes::test_stores()?;
    let mut bao = PathBuf::new();
    step("OpenBao", "BAO_BIN names a program to use instead.", || {
        bao = match environment::variable(BAO_VARIABLE) {
            Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
            None => build(&test_stores)?,
        };
        eprintln!("OpenBao is {}", bao.display());
        Ok(())
    })?;
    let mut chosen = vec!["--test", "it"];
    chosen.extend(PACKAGES.iter().flat_map(|package| ["--package", package]));
    let tests = Tests { chosen: &chosen, with_docs: false, filter, at_once: PROGRAMS_AT_ONCE };
    step("tests with OpenBao", "The logs of the servers are where the failed test says.", || {
        tests.run(|command| {
            command.env(BAO_VARIABLE, &bao).env_remove(VAULT_VARIABLE);
        })
    })
}

/// The path that the test kit prints when it has built one.
fn build(test_stores: &Path) -> Result<PathBuf> {
    let mut command = program(test_stores);
    let said = command.arg("openbao").stderr(std::process::Stdio::inherit()).output();
    let said = said.with_context(|| format!("cannot start {}", test_stores.display()))?;
    if !said.status.success() {
        bail!("{}", said.status);
    }
    Ok(PathBuf::from(String::from_utf8(said.stdout).context("its path is no text")?.trim_end()))
}

//! The contract of openZro's management API. The tests of the crate run it, too; here it stands alone, and its record is written.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step::{cargo, run};

/// The tests write the record instead of checking it, with this as its date.
const RECORD_VARIABLE: &str = "KONVERGE_OPENZRO_RECORD";

pub(crate) fn test(record: bool) -> Result<()> {
    if record {
        let mut tests = contract();
        tests.env(RECORD_VARIABLE, today()?);
        run(
            "record of the openZro server",
            tests,
            "What the server answered otherwise than the suite expects is above.",
        )?;
    }
    run("contract of openZro", contract(), "The first call that differs from the record is above.")
}

fn contract() -> Command {
    let mut tests = cargo(["test", "--package", "konverge-openzro", "--test", "it", "contract", "--", "--nocapture"]);
    tests.env_remove(RECORD_VARIABLE);
    tests
}

fn today() -> Result<String> {
    let output = Command::new("date").arg("+%Y-%m-%d").output().context("cannot start date")?;
    if !output.status.success() {
        bail!("date failed: {}", output.status);
    }
    Ok(String::from_utf8(output.stdout).context("the date is no text")?.trim().to_owned())
}

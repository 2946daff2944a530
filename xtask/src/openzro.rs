//! The contract of openZro's management API. The tests of the crate run it, too; here it stands alone, and its record is written.

use std::process::Command;

use anyhow::Result;

use crate::step::{cargo, run, today};

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

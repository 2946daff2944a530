//! The contract of openZro's management API, and manage's tests of behaviour on it. The tests of the crates run both, too; here they stand alone, and
//! the record of the contract is written.

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
    run("contract of openZro", contract(), "The first call that differs from the record is above.")?;
    run("manage on openZro", behaviour(), "The tests that failed are above, and the calls to the server that they saw.")
}

/// The tests of manage on the best target there is: the server, or else the verified double. They say which.
fn behaviour() -> Command {
    cargo(["test", "--package", "konverge-manage", "--test", "it", "--", "--nocapture"])
}

fn contract() -> Command {
    let mut tests = cargo(["test", "--package", "konverge-openzro", "--test", "it", "contract", "--", "--nocapture"]);
    tests.env_remove(RECORD_VARIABLE);
    tests
}

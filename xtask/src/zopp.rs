//! The published programs of zopp beside ours. The tests of the command line run them where the cache has them; here they are built, and the record
//! of that run is written.

use std::process::Command;

use anyhow::Result;

use crate::{
    recipes,
    step::{cargo, program, run, today},
};

/// The tests write the record, with this as its date.
const RECORD_VARIABLE: &str = "KONVERGE_ZOPP_RECORD";

pub(crate) fn test(record: bool) -> Result<()> {
    let mut build = program(&recipes::test_stores()?);
    build.arg("zopp");
    run("published programs of zopp", build, "They come from the crate registry; is that reachable?")?;
    let mut tests = tests();
    if record {
        tests.env(RECORD_VARIABLE, today()?);
    }
    run("published programs and ours", tests, "The first command that failed is above.")
}

fn tests() -> Command {
    let mut tests = cargo(["test", "--package", "konverge-zopp-cli", "--test", "it", "published", "--", "--nocapture"]);
    tests.env_remove(RECORD_VARIABLE);
    tests
}

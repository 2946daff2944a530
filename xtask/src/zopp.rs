//! The published programs of zopp beside ours. The tests of the command line and the end-to-end tests run them where the cache has them; here
//! they are built, and the records of that run are written.

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
    // The tests of the operators look for our programs beside themselves.
    run("our programs", cargo(["build", "--workspace", "--bins"]), "What failed is above.")?;
    for (what, package, filter) in [
        ("published programs and ours", "konverge-zopp-cli", "published::"),
        ("published operator and ours", "konverge-e2e", "published_zopp::"),
    ] {
        let mut tests = cargo(["test", "--package", package, "--test", "it", filter, "--", "--nocapture"]);
        tests.env_remove(RECORD_VARIABLE);
        if record {
            tests.env(RECORD_VARIABLE, today()?);
        }
        run(what, tests, "The first failure is above.")?;
    }
    Ok(())
}

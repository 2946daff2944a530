//! The tests of what users install, on the earlier minor versions of Kubernetes. Not a part of CI, because each version takes long to build.

use anyhow::Result;

use crate::{
    assets::{KUBERNETES_VARIABLE, SUPPORTED_BEFORE},
    step::{cargo, run, step},
    testing::{PROGRAMS_AT_ONCE, Tests},
};

/// Installs the chart, follows the tutorials, and upgrades and removes what they installed.
const CHOSEN: [&str; 4] = ["--package", "konverge-cli", "--test", "shipped"];

pub(crate) fn test(filter: Option<&str>) -> Result<()> {
    run("build", cargo(["build", "--workspace", "--bins"]), "What failed, and why, is above.")?;
    let tests = Tests { chosen: &CHOSEN, with_docs: false, filter, at_once: PROGRAMS_AT_ONCE };
    for minor in SUPPORTED_BEFORE {
        step(
            &format!("tests on Kubernetes {minor}"),
            "The logs of the servers are where the failed test says.",
            || {
                tests.run(|command| {
                    command.env(KUBERNETES_VARIABLE, minor);
                })
            },
        )?;
    }
    Ok(())
}

//! Generated files: manifests and reference pages that programs of ours write out of themselves.

use anyhow::Result;

use crate::step::{cargo, run};

/// Each program that generates, and where its files are committed.
const PROGRAMS: [(&str, &str); 3] = [
    ("configmapsync-operator", "examples/configmapsync/deploy"),
    ("konverge-template", "crates/konverge-new/template/deploy"),
    ("multicontroller-operator", "examples/multicontroller/deploy"),
];

/// Writes all generated files, or with `check` fails where they are not as they would be.
pub(crate) fn generate(check: bool) -> Result<()> {
    for (package, folder) in PROGRAMS {
        let mut generate = cargo(["run", "--quiet", "--package", package, "--", "generate", "--into", folder]);
        if check {
            generate.arg("--check");
        }
        run(
            &format!("generated files of {package}"),
            generate,
            "`cargo xtask generate` mends it; commit what it writes.",
        )?;
    }
    Ok(())
}

//! Generated files: manifests and reference pages that programs of ours write out of themselves.

use anyhow::Result;

use crate::{
    paths, recipes,
    step::{program, run},
};

/// A program of ours that writes files, and the folder where they are committed.
struct Generator {
    /// The folder into which cargo builds it.
    built: &'static str,
    name: &'static str,
    arguments: &'static [&'static str],
    folder: &'static str,
}

/// Returns the generator that is part of an operator.
const fn operator(name: &'static str, arguments: &'static [&'static str], folder: &'static str) -> Generator {
    Generator { built: "debug", name, arguments, folder }
}

/// Returns the generator that is an example of a crate, so that the operator itself holds nothing but its job.
const fn example(name: &'static str, folder: &'static str) -> Generator {
    Generator { built: "debug/examples", name, arguments: &[], folder }
}

/// Every generator, in the order in which they run. The plain manifests are rendered from the chart, with the Helm that the tests use, so the chart comes
/// before them; the first run builds Helm.
const GENERATORS: [Generator; 15] = [
    operator("cloudbucket-operator", &["generate"], "examples/cloudbucket/deploy"),
    operator("configmapsync-operator", &["generate"], "examples/configmapsync/deploy"),
    operator("labelcopy-operator", &["generate"], "examples/labelcopy/deploy"),
    operator("konverge-template", &["generate"], "crates/konverge-new/template/deploy"),
    operator("multicontroller-operator", &["generate"], "examples/multicontroller/deploy"),
    operator("configmapsync-operator", &["generate", "--helm"], "examples/configmapsync/deploy/chart"),
    example("generate-pull", "deploy/crds"),
    example("generate-push", "deploy/crds"),
    example("generate-roll", "deploy/crds"),
    example("generate-manage", "deploy/openzro"),
    example("chart", "deploy/charts/konverge"),
    example("manifests", "deploy"),
    example("roles", "deploy/rbac"),
    example("policies", "deploy"),
    example("reference", "docs/reference"),
];

/// Writes all generated files, or with `check` fails where they are not as they would be.
pub(crate) fn generate(check: bool) -> Result<()> {
    // The build of the tests. Cargo would choose features anew for each `cargo run --package`, and compile the dependencies again.
    recipes::build_all()?;
    for Generator { built, name, arguments, folder } in &GENERATORS {
        let mut generate = program(&paths::built(built, name));
        generate.args(*arguments).args(["--into", folder]);
        if check {
            generate.arg("--check");
        }
        run(
            &format!("generated files of {name}"),
            generate,
            "`cargo xtask generate` writes them anew; commit what it writes.",
        )?;
    }
    Ok(())
}

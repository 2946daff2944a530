//! Generated files: manifests and reference pages that programs of ours write out of themselves.

use anyhow::Result;

use crate::step::{cargo, run};

/// Each program that generates, and where its files are committed.
const PROGRAMS: [(&str, &str); 5] = [
    ("cloudbucket-operator", "examples/cloudbucket/deploy"),
    ("configmapsync-operator", "examples/configmapsync/deploy"),
    ("labelcopy-operator", "examples/labelcopy/deploy"),
    ("konverge-template", "crates/konverge-new/template/deploy"),
    ("multicontroller-operator", "examples/multicontroller/deploy"),
];

/// Each program whose Helm chart is committed, and where.
const CHARTS: [(&str, &str); 1] = [("configmapsync-operator", "examples/configmapsync/deploy/chart")];

/// The definition of a job of ours, by an example of its crate: the program itself holds nothing but the job. Cargo puts all examples into one folder, so
/// each has its own name.
const DEFINITIONS: [(&str, &str, &str); 4] = [
    ("konverge-pull", "generate-pull", "deploy/crds"),
    ("konverge-push", "generate-push", "deploy/crds"),
    ("konverge-roll", "generate-roll", "deploy/crds"),
    ("konverge-manage", "generate-manage", "deploy/openzro"),
];

/// The chart of everything, by an example of the program that runs the jobs.
const WHOLE_CHART: (&str, &str) = ("konverge-cli", "deploy/charts/konverge");

/// The plain manifests, rendered from that chart with the Helm that the tests use. The first run builds it.
const MANIFESTS: (&str, &str) = ("konverge-cli", "deploy");

/// The roles of the operators, by an example of the same program.
const ROLES: (&str, &str) = ("konverge-cli", "deploy/rbac");

/// The policies for Vault, by an example of the same program.
const POLICIES: (&str, &str) = ("konverge-cli", "deploy");

/// The generated pages of the docs, by an example of the same program.
const REFERENCE: (&str, &str) = ("konverge-cli", "docs/reference");

/// Writes all generated files, or with `check` fails where they are not as they would be.
pub(crate) fn generate(check: bool) -> Result<()> {
    let programs = PROGRAMS.map(|(package, folder)| (package, folder, vec!["--", "generate"]));
    let charts = CHARTS.map(|(package, folder)| (package, folder, vec!["--", "generate", "--helm"]));
    let definitions = DEFINITIONS.map(|(package, example, folder)| (package, folder, vec!["--example", example, "--"]));
    let whole_chart = (WHOLE_CHART.0, WHOLE_CHART.1, vec!["--example", "chart", "--"]);
    let manifests = (MANIFESTS.0, MANIFESTS.1, vec!["--example", "manifests", "--"]);
    let reference = (REFERENCE.0, REFERENCE.1, vec!["--example", "reference", "--"]);
    let roles = (ROLES.0, ROLES.1, vec!["--example", "roles", "--"]);
    let policies = (POLICIES.0, POLICIES.1, vec!["--example", "policies", "--"]);
    // The manifests are rendered from the chart, so the chart comes first.
    let ours = [whole_chart, manifests, roles, policies, reference];
    for (package, folder, how) in programs.into_iter().chain(charts).chain(definitions).chain(ours) {
        let mut generate = cargo(["run", "--quiet", "--package", package]);
        generate.args(how).args(["--into", folder]);
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

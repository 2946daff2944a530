//! Whether the published crates still keep their promises: `cargo-semver-checks` against the last release, or before the first release against
//! the revision at which the API was last meant to change.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::{
    paths, published,
    step::{program, run},
    tools,
};

/// The version of Kubernetes that the libraries are checked with; they choose none themselves.
const KUBERNETES: (&str, &str) = ("K8S_OPENAPI_ENABLED_VERSION", "1.36");

/// The file with the revision that stands for a release until there is one. Lines that begin with `#` explain it.
const FILE: &str = "xtask/semver-baseline";

/// The published crates that need no types of Kubernetes: each is compared in a minute, any other in several.
const LIGHT: [&str; 2] = ["konverge-core", "konverge-endpoint"];

/// Compares each published crate with the given revision, else with the last release, else with the revision that the file names.
pub(crate) fn check(revision: Option<&str>) -> Result<()> {
    let revision = revision.map_or_else(default_revision, |revision| Ok(revision.to_owned()))?;
    compare(&described()?, &revision)
}

/// The part of [`check`] that CI has time for, where the tool is installed. It takes longer to build than to run.
pub(crate) fn check_in_ci() -> Result<()> {
    if !tools::is_installed(&tools::SEMVER_CHECKS)? {
        eprintln!(
            "SKIPPED: this machine has no cargo-semver-checks. `cargo xtask semver` builds it and compares all published crates."
        );
        return Ok(());
    }
    compare(&LIGHT.map(ToOwned::to_owned), &default_revision()?)
}

fn default_revision() -> Result<String> {
    let file = paths::workspace().join(FILE);
    let file = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    baseline(&tags()?, &file).with_context(|| {
        format!("nothing to compare with: no tag of a release, such as v0.1.0, and no revision in {FILE}")
    })
}

fn compare(packages: &[String], revision: &str) -> Result<()> {
    let tool = tools::ensure(&tools::SEMVER_CHECKS)?;
    let mut check = program(&tool);
    check.args(["semver-checks", "--baseline-rev", revision, "--default-features"]);
    for package in packages {
        check.args(["--package", package]);
    }
    check.env(KUBERNETES.0, KUBERNETES.1);
    run(
        &format!("published crates against {revision}"),
        check,
        "Take the change back, or raise the version of all published crates, which are released together. Before the first release, name the \
         commit in xtask/semver-baseline and say in CHANGELOG.md what changed.",
    )
}

/// The last release among the tags of the repository, which is the one with the highest version; without one, the revision in the file.
fn baseline(tags: &str, file: &str) -> Option<String> {
    let releases = tags.lines().filter_map(|tag| Some((version(tag.trim())?, tag.trim())));
    let named = || file.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    releases.max().map(|(_, tag)| tag).or_else(named).map(ToOwned::to_owned)
}

/// The numbers of a tag such as v1.2.3. A preview, such as v1.2.3-rc.1, promises nothing.
fn version(tag: &str) -> Option<[u64; 3]> {
    let numbers: Result<Vec<u64>, _> = tag.strip_prefix('v')?.split('.').map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}

fn tags() -> Result<String> {
    let mut git = program(Path::new("git"));
    let output = git.args(["tag", "--list", "v*"]).output();
    let output = output.context("cannot start git")?;
    if !output.status.success() {
        bail!("git tag failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The published crates with an API of functions and types: macros have no description that could be compared.
fn described() -> Result<Vec<String>> {
    let names = published::packages()?.into_iter().map(|package| package.name);
    Ok(names.filter(|name| name != "konverge-macros").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_the_highest_release_and_before_the_first_one_the_revision_of_the_file() {
        const FILE: &str = "# Why.\n\n  8cc7dc58\n";
        for (tags, file, expected) in [
            ("v0.1.0\n", FILE, Some("v0.1.0")),
            ("v0.9.0\nv0.10.0\nv0.2.11\n", FILE, Some("v0.10.0")),
            ("v1.0.0-rc.1\nv0.1.0\nvault\nv1\n", FILE, Some("v0.1.0")),
            ("", FILE, Some("8cc7dc58")),
            ("v2.0.0-beta.1\n1.0.0\nnightly\n", FILE, Some("8cc7dc58")),
            ("", "# Nothing yet.\n", None),
        ] {
            assert_eq!(baseline(tags, file).as_deref(), expected, "{tags} {file}");
        }
    }

    #[test]
    fn ci_compares_crates_that_are_published() {
        let published = described().unwrap();
        assert!(LIGHT.iter().all(|light| published.iter().any(|package| package == light)), "{published:?}");
    }

    #[test]
    fn the_file_names_a_revision_of_this_history() {
        let file = fs::read_to_string(paths::workspace().join(FILE)).unwrap();
        let revision = baseline("", &file).unwrap();
        let git = |arguments: &[&str]| program(Path::new("git")).args(arguments).output().unwrap();
        // A clone of the last commit alone cannot tell.
        if git(&["rev-parse", "--is-shallow-repository"]).stdout.trim_ascii() != b"true" {
            let found = git(&["merge-base", "--is-ancestor", &revision, "HEAD"]);
            assert!(found.status.success(), "{revision}: {}", String::from_utf8_lossy(&found.stderr));
        }
    }
}

//! The docs for users name what there is, and nothing that there is not: flags, variables, annotations, reasons, metrics, verbs, values of the chart, files.
//!
//! A test program of its own, so that `cargo test --package konverge-cli --test docs` starts no server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod names;
mod settings;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// A page for users.
struct Page {
    /// Its path from the root of the workspace.
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The pages about the operators. Those about the framework and about zopp have other flags and reasons, and their own tests.
fn pages() -> Vec<Page> {
    let mut paths: Vec<String> = [
        "README.md",
        "SECURITY.md",
        "operators/pull/README.md",
        "docs/index.md",
        "docs/install.md",
        "docs/manage.md",
        "docs/manage-services.md",
        "docs/releases.md",
        "docs/versions.md",
    ]
    .map(str::to_owned)
    .to_vec();
    for folder in ["explanation", "how-to", "migrate", "reference", "troubleshooting", "tutorials"] {
        for entry in fs::read_dir(root().join("docs").join(folder)).unwrap() {
            paths.push(format!("docs/{folder}/{}", entry.unwrap().file_name().to_str().unwrap()));
        }
    }
    assert!(paths.len() > 35, "{paths:?}");
    paths.into_iter().map(|path| Page { text: read(&path), path }).collect()
}

/// The words of a text that are made of such letters.
fn words(text: &str, is_letter: impl Fn(char) -> bool) -> impl Iterator<Item = &str> {
    text.split(move |letter| !is_letter(letter)).filter(|word| !word.is_empty())
}

/// The texts between backticks, outside of blocks of code.
fn quoted(page: &str) -> impl Iterator<Item = &str> {
    let parts = page.split("```").step_by(2);
    parts.flat_map(|part| part.split('`').skip(1).step_by(2))
}

/// The first cells of the rows of a page's tables, without backticks.
fn first_cells(page: &str) -> BTreeSet<String> {
    page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(str::to_owned).collect()
}

/// Fails with all faults, each with its page.
fn assert_none(what: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{what}:\n{}", faults.join("\n"));
}

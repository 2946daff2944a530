//! `cargo metadata`: the packages of the workspace, and how cargo resolved their dependencies.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, de::DeserializeOwned};

use crate::step::cargo;

/// Returns what `cargo metadata` prints with these arguments, as much of it as `T` reads.
pub(crate) fn read<T: DeserializeOwned>(arguments: &[&str]) -> Result<T> {
    let mut metadata = cargo(["metadata", "--format-version", "1"]);
    let output = metadata.args(arguments).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("cannot read cargo's metadata")
}

/// The resolved dependencies of all packages.
#[derive(Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

/// The resolved dependencies of one package.
#[derive(Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `None` for a normal dependency, else `dev` or `build`.
    kind: Option<String>,
}

impl Node {
    /// Returns the ids of the packages that are linked into this one: not those of tests and build scripts.
    pub(crate) fn linked(&self) -> impl Iterator<Item = &str> {
        let is_linked = |dependency: &&Dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
        self.deps.iter().filter(is_linked).map(|dependency| dependency.pkg.as_str())
    }
}

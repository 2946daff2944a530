//! The crates that are published, as cargo sees them.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::step::cargo;

/// A published crate: its manifest, with what it takes from the workspace.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The registries that it may go to: `None` is any, an empty list is none.
    #[serde(default)]
    pub(crate) publish: Option<Vec<String>>,
    pub(crate) description: Option<String>,
    pub(crate) readme: Option<String>,
    pub(crate) license: Option<String>,
    pub(crate) documentation: Option<String>,
    pub(crate) rust_version: Option<String>,
    #[serde(default)]
    pub(crate) keywords: Vec<String>,
    #[serde(default)]
    pub(crate) categories: Vec<String>,
    #[serde(default)]
    pub(crate) metadata: Value,
    #[serde(default)]
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency of a crate.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// Returns the published crates of the workspace.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let output = cargo(["metadata", "--no-deps", "--format-version", "1"]).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cannot read cargo's metadata")?;
    Ok(metadata.packages.into_iter().filter(|package| package.publish.is_none()).collect())
}

//! The crates that are published, as cargo sees them.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::metadata;

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
    let metadata: Metadata = metadata::read(&["--no-deps"])?;
    Ok(metadata.packages.into_iter().filter(|package| package.publish.is_none()).collect())
}

/// Returns the version of Rust that the facade states, and with it all that it is made of.
pub(crate) fn oldest_rust() -> Result<String> {
    let facade = packages()?.into_iter().find(|package| package.name == "konverge");
    facade.and_then(|facade| facade.rust_version).context("konverge states no rust-version")
}

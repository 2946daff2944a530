//! Where things are: the workspace, what cargo built, and the cache that outlives a clone.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::environment;

/// The workspace's root, wherever the command was called.
pub(crate) fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// A binary that `cargo build` made with `profile`, which is the name of its folder.
pub(crate) fn built(profile: &str, name: &str) -> PathBuf {
    target().join(profile).join(name)
}

/// The folder into which cargo builds, and where other things are that a build can make again.
pub(crate) fn target() -> PathBuf {
    environment::variable("CARGO_TARGET_DIR").unwrap_or_else(|| workspace().join("target"))
}

/// Things that take minutes to make and outlive a clone. The test kit keeps its control plane under the same root.
pub(crate) fn cache() -> Result<PathBuf> {
    environment::cache().context("no place for the cache: set KONVERGE_CACHE or HOME")
}

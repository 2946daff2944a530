//! Where things are: the workspace, what cargo built, and the cache that outlives a clone.

use std::{env, path::PathBuf};

use anyhow::{Context, Result};

/// The workspace's root, wherever the command was called.
pub(crate) fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// A binary that `cargo build` made with `profile`, which is the name of its folder.
pub(crate) fn built(profile: &str, name: &str) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    target.join(profile).join(name)
}

/// Things that take minutes to make and outlive a clone. The test kit keeps its control plane under the same root.
pub(crate) fn cache() -> Result<PathBuf> {
    if let Some(path) = env::var_os("KONVERGE_CACHE") {
        return Ok(PathBuf::from(path));
    }
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(env::var_os("HOME").context("no place for the cache: set KONVERGE_CACHE or HOME")?)
            .join(".cache"),
    };
    Ok(base.join("konverge"))
}

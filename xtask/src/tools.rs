//! Cargo's helpers that a clean machine lacks: built once, at a pinned version, into the cache.

use std::path::PathBuf;

use anyhow::Result;

use crate::{paths, step};

/// A program from the crate registry.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
}

/// Checks licences, bans and sources.
pub(crate) const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

/// Finds unused dependencies by reading the sources, so it needs no build and is itself built in seconds.
pub(crate) const MACHETE: Tool = Tool { name: "cargo-machete", version: "0.9.2" };

/// The tool's path, after building it if it is not in the cache.
pub(crate) fn ensure(tool: &Tool) -> Result<PathBuf> {
    let root = paths::cache()?.join("tools").join(format!("{}-{}", tool.name, tool.version));
    let path = root.join("bin").join(tool.name);
    if !path.exists() {
        let mut install = step::cargo(["install", "--locked", "--quiet", tool.name, "--version", tool.version]);
        install.arg("--root").arg(&root);
        let what =
            format!("building {} {} into the cache, once per machine; takes some minutes", tool.name, tool.version);
        step::run(&what, install, "It comes from the crate registry; is that reachable?")?;
    }
    Ok(path)
}

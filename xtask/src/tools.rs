//! Helpers that a clean machine lacks: built or installed once, at a pinned version, into the cache.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use crate::{paths, step};

/// A program from the crate registry.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
    /// Further arguments of `cargo install`.
    arguments: &'static [&'static str],
}

impl Tool {
    /// The folder that cargo installs it into.
    fn root(&self) -> Result<PathBuf> {
        Ok(paths::cache()?.join("tools").join(format!("{}-{}", self.name, self.version)))
    }
}

/// Checks licences, bans and sources.
pub(crate) const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", arguments: &[] };

/// Finds unused dependencies by reading the sources, so it needs no build and is itself built in seconds.
pub(crate) const MACHETE: Tool = Tool { name: "cargo-machete", version: "0.9.2", arguments: &[] };

/// Compares the API of a crate with that of an earlier revision. It reads the description that rustdoc writes, whose form changes with Rust: a new
/// toolchain may need a newer version of it.
pub(crate) const SEMVER_CHECKS: Tool = Tool { name: "cargo-semver-checks", version: "0.51.0", arguments: &[] };

/// Builds the site of the docs. Without its server and its watcher, which are most of its dependencies.
pub(crate) const MDBOOK: Tool =
    Tool { name: "mdbook", version: "0.5.4", arguments: &["--no-default-features", "--features", "search"] };

/// Whether the tool is in the cache.
pub(crate) fn is_installed(tool: &Tool) -> Result<bool> {
    Ok(tool.root()?.join("bin").join(tool.name).exists())
}

/// The tool's path, after building it if it is not in the cache.
pub(crate) fn ensure(tool: &Tool) -> Result<PathBuf> {
    let root = tool.root()?;
    let path = root.join("bin").join(tool.name);
    if !path.exists() {
        let mut install = step::cargo(["install", "--locked", "--quiet", tool.name, "--version", tool.version]);
        install.args(tool.arguments).arg("--root").arg(&root);
        let what =
            format!("building {} {} into the cache, once per machine; takes some minutes", tool.name, tool.version);
        step::run(&what, install, "It comes from the crate registry; is that reachable?")?;
    }
    Ok(path)
}

/// The version of Zig, whose C compiler has the headers of musl for every architecture.
const ZIG: &str = "0.17.0";

/// Returns the folder of the program `zig`, after installing it if it is not in the cache. It is a package of `PyPI`: no crate holds a C compiler.
pub(crate) fn zig() -> Result<PathBuf> {
    let root = paths::cache()?.join("tools").join(format!("ziglang-{ZIG}"));
    let folder = root.join("ziglang");
    if !folder.join("zig").exists() {
        let mut install = Command::new("python3");
        install.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--disable-pip-version-check",
        ]);
        install.arg(format!("ziglang=={ZIG}")).arg("--target").arg(&root);
        let what = format!("installing Zig {ZIG} into the cache, once per machine, for its C compiler");
        step::run(
            &what,
            install,
            "It comes from PyPI by Python's pip. To use another C compiler, name it in CC_TARGET.",
        )?;
    }
    Ok(folder)
}

//! The walls between the rooms, held against the dependency graph, and the size of files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{paths, step::cargo};

/// Beyond this many lines a file surely holds more than one idea.
const LINES_AT_MOST: usize = 700;

/// Crates that are pure: what they may depend on does no IO.
const PURE: [&str; 2] = ["konverge-core", "konverge-zopp-crypto"];

/// What does IO or brings a runtime.
const IO: [&str; 10] =
    ["axum", "hyper", "kube", "rustix", "socket2", "sqlx", "tokio", "tokio-util", "tonic", "tracing-subscriber"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `None` is a normal dependency; tests and build scripts may look over the walls.
    kind: Option<String>,
    path: Option<PathBuf>,
}

pub(crate) fn run() -> Result<()> {
    let root = paths::workspace();
    let output = cargo(["metadata", "--no-deps", "--format-version", "1"]).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cannot read cargo's metadata")?;
    let mut faults: Vec<String> = metadata.packages.iter().flat_map(|package| wall_faults(&root, package)).collect();
    faults.extend(long_files(&root)?);
    if !faults.is_empty() {
        bail!("not tidy:\n  {}\nARCHITECTURE.md says which room may look into which.", faults.join("\n  "));
    }
    eprintln!("tidy: {} packages keep the walls, no file is too long", metadata.packages.len());
    Ok(())
}

/// The walls that a package's normal dependencies break.
fn wall_faults(root: &Path, package: &Package) -> Vec<String> {
    let own = room(root, &package.manifest_path);
    let normal = package.dependencies.iter().filter(|dependency| dependency.kind.is_none());
    normal
        .filter_map(|dependency| {
            let other = dependency.path.as_deref().map(|path| room(root, path)).unwrap_or_default();
            let why = broken_wall(&package.name, &own, &dependency.name, &other)?;
            Some(format!("{} must not depend on {}: {why}", package.name, dependency.name))
        })
        .collect()
}

/// The top folder that a path of the workspace lies in; empty for what is not ours.
fn room(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .ok()
        .and_then(|inside| inside.components().next())
        .map(|top| top.as_os_str().to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn broken_wall(package: &str, room: &str, dependency: &str, other: &str) -> Option<&'static str> {
    if PURE.contains(&package) && IO.contains(&dependency) {
        return Some("it is pure, and that does IO");
    }
    match (room, other) {
        ("crates", "stores" | "operators" | "bins") => Some("the framework knows no store and no job"),
        ("stores", "operators" | "bins") => Some("a store knows no job"),
        ("stores", "crates") if dependency != "konverge-core" => Some("a store knows of the framework only its core"),
        ("stores", _) if ["kube", "k8s-openapi"].contains(&dependency) => Some("a store knows no Kubernetes"),
        ("operators", "operators") => Some("what two operators need moves down"),
        _ => None,
    }
}

fn long_files(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.to_owned()];
    let skipped = BTreeSet::from(["target", ".git"]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                if !path.file_name().is_some_and(|name| skipped.contains(&*name.to_string_lossy())) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let lines = fs::read_to_string(&path)?.lines().count();
                if lines > LINES_AT_MOST {
                    found.push(format!("{} has {lines} lines; split it by idea", path.display()));
                }
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::broken_wall;

    #[test]
    fn walls() {
        for (package, room, dependency, other, broken) in [
            ("konverge-runtime", "crates", "konverge-core", "crates", false),
            ("konverge-runtime", "crates", "konverge-zopp-client", "stores", true),
            ("konverge-zopp-client", "stores", "konverge-core", "crates", false),
            ("konverge-zopp-client", "stores", "konverge-runtime", "crates", true),
            ("konverge-zopp-client", "stores", "kube", "", true),
            ("konverge-pull", "operators", "konverge-zopp-client", "stores", false),
            ("konverge-pull", "operators", "konverge-push", "operators", true),
            ("konverge-core", "crates", "tokio", "", true),
            ("konverge-core", "crates", "sha2", "", false),
        ] {
            let why = broken_wall(package, room, dependency, other);
            assert_eq!(why.is_some(), broken, "{package} on {dependency}: {why:?}");
        }
    }
}

//! The dependency graph as cargo resolved it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::Deserialize;

use crate::metadata::{self, Node, Resolve};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_members: BTreeSet<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct MetadataPackage {
    id: String,
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    rust_version: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
}

/// A package of the graph.
pub(crate) struct Package {
    pub(crate) name: String,
    /// The workspace's top folder that it lies in; empty for what is not ours.
    pub(crate) room: String,
    /// The first files of its programs.
    pub(crate) mains: Vec<PathBuf>,
    /// The oldest Rust that it states.
    pub(crate) rust: Option<RustVersion>,
    /// Its direct dependencies.
    pub(crate) dependencies: Vec<String>,
}

/// A version of Rust; 1.89 and 1.89.0 are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RustVersion([u32; 3]);

impl RustVersion {
    /// Reads what a manifest states; parts that are left out are zero.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut version = [0; 3];
        for (number, part) in version.iter_mut().zip(text.split('.')) {
            *number = part.parse().ok()?;
        }
        Some(Self(version))
    }
}

impl fmt::Display for RustVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Packages by their ids.
pub(crate) struct Graph(pub(crate) BTreeMap<String, Package>);

impl Graph {
    /// Our own packages, with their ids.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &Package)> {
        self.0.iter().filter(|(_, package)| !package.room.is_empty()).map(|(id, package)| (id.as_str(), package))
    }

    /// All that a package depends on, directly or not, each with the shortest way to it: the names from the package on.
    pub(crate) fn reached(&self, id: &str) -> Vec<(&Package, Vec<&str>)> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::from([id]);
        let mut next: VecDeque<(&str, Vec<&str>)> = VecDeque::from([(id, Vec::new())]);
        while let Some((id, way)) = next.pop_front() {
            let Some(package) = self.0.get(id) else { continue };
            let way = [way, vec![package.name.as_str()]].concat();
            let new = package.dependencies.iter().filter(|dependency| seen.insert(dependency));
            next.extend(new.map(|dependency| (dependency.as_str(), way.clone())));
            if way.len() > 1 {
                found.push((package, way));
            }
        }
        found
    }
}

/// Asks cargo.
pub(crate) fn read(workspace: &Path) -> Result<Graph> {
    let metadata: Metadata = metadata::read(&[])?;
    let linked = |node: &Node| (node.id.clone(), node.linked().map(str::to_owned).collect());
    let mut edges: BTreeMap<String, Vec<String>> = metadata.resolve.nodes.iter().map(linked).collect();
    let package = |package: MetadataPackage| {
        let room = if metadata.workspace_members.contains(&package.id) {
            top_folder(workspace, &package.manifest_path)
        } else {
            String::new()
        };
        let programs = package.targets.into_iter().filter(|target| target.kind.iter().any(|kind| kind == "bin"));
        let mains = programs.map(|target| target.src_path).collect();
        let dependencies = edges.remove(&package.id).unwrap_or_default();
        let rust = package.rust_version.as_deref().and_then(RustVersion::read);
        (package.id, Package { name: package.name, room, mains, rust, dependencies })
    };
    Ok(Graph(metadata.packages.into_iter().map(package).collect()))
}

fn top_folder(root: &Path, path: &Path) -> String {
    let top = path.strip_prefix(root).ok().and_then(|inside| inside.components().next());
    top.map(|top| top.as_os_str().to_string_lossy().into_owned()).unwrap_or_default()
}

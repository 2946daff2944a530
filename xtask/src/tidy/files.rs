//! Mains without logic.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::graph::Graph;

/// A main calls a library; beyond this many lines it does something itself.
const MAIN_LINES_AT_MOST: usize = 40;

/// Rooms whose programs are for users. Those of developers, such as this one, may be whole in one crate.
const ROOMS: [&str; 3] = ["bins", "operators", "stores"];

/// Programs for users whose first file is too long to be without logic, or, in `bins`, is not the only one.
pub(super) fn logic_in_mains(graph: &Graph) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (_, package) in graph.members().filter(|(_, package)| ROOMS.contains(&package.room.as_str())) {
        for main in &package.mains {
            let lines = lines(main)?;
            if lines > MAIN_LINES_AT_MOST {
                found.push(format!("{} has {lines} lines; its logic belongs into a library", main.display()));
            }
            let folder = main.parent().filter(|_| package.room == "bins");
            for other in folder.map(sources).transpose()?.unwrap_or_default() {
                if other != *main {
                    found.push(format!("{} is logic of a bin; it belongs into a library", other.display()));
                }
            }
        }
    }
    Ok(found)
}

fn lines(path: &Path) -> Result<usize> {
    Ok(fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?.lines().count())
}

/// All Rust files in and beneath a folder, but for what was built.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                if !path.ends_with("target") && !path.ends_with(".git") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

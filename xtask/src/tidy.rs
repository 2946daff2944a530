//! What keeps the house in order: the walls between the rooms, held against the resolved dependency graph, and the size of files.

mod files;
mod graph;
mod walls;

use anyhow::{Result, bail};

use crate::paths;

pub(crate) fn run() -> Result<()> {
    let root = paths::workspace();
    let graph = graph::read(&root)?;
    let mut faults = walls::faults(&graph);
    faults.extend(files::logic_in_mains(&graph)?);
    faults.extend(files::too_long(&root)?);
    if !faults.is_empty() {
        bail!("not tidy:\n  {}\nARCHITECTURE.md says which room may look into which.", faults.join("\n  "));
    }
    eprintln!("tidy: {} packages keep the walls, no file is too long", graph.members().count());
    Ok(())
}

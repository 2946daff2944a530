//! What keeps the house in order: the walls between the rooms, held against the resolved dependency graph, the size of files, and tests
//! that docs name.

mod files;
mod graph;
mod named_tests;
mod walls;

use anyhow::{Result, bail};

use crate::paths;

pub(crate) fn run() -> Result<()> {
    let root = paths::workspace();
    let graph = graph::read(&root)?;
    let mut faults = walls::faults(&graph);
    faults.extend(files::logic_in_mains(&graph)?);
    faults.extend(files::too_long(&root)?);
    faults.extend(named_tests::missing(&root)?);
    if !faults.is_empty() {
        bail!("not tidy:\n  {}\nARCHITECTURE.md says which room may look into which.", faults.join("\n  "));
    }
    eprintln!(
        "tidy: {} packages keep the walls, no file is too long, tests that docs name are there",
        graph.members().count()
    );
    Ok(())
}

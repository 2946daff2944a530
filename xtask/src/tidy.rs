//! Checks of the house: the walls between the rooms against the resolved dependency graph, mains without logic, Rust versions that
//! the dependencies allow, what published crates say of themselves, tests that docs name, and links.

mod files;
mod graph;
pub(crate) mod links;
mod named_tests;
mod publishing;
mod rust_versions;
mod walls;

use anyhow::{Result, bail};

use crate::{paths, published};

pub(crate) fn run() -> Result<()> {
    let root = paths::workspace();
    let graph = graph::read(&root)?;
    let mut faults = walls::faults(&graph);
    faults.extend(rust_versions::faults(&graph));
    faults.extend(files::logic_in_mains(&graph)?);
    faults.extend(named_tests::missing(&root)?);
    faults.extend(links::faults(&root)?);
    faults.extend(publishing::faults(&published::packages()?));
    if !faults.is_empty() {
        bail!("not tidy:\n  {}\nARCHITECTURE.md says which room may look into which.", faults.join("\n  "));
    }
    eprintln!(
        "tidy: {} packages keep the walls, tests that docs name are there, links lead somewhere",
        graph.members().count()
    );
    Ok(())
}

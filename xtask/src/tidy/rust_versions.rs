//! Whether each crate states a Rust version that its dependencies build with.
//!
//! Other toolchains than the pinned one need not be on the machine, so CI has this, and clippy, which refuses items of the standard library that
//! are newer than the stated version. `cargo xtask outside --oldest-rust` compiles the crates with the stated version.

use super::graph::Graph;

/// The crates of ours that state an older Rust than one of their dependencies needs, and those that state none.
pub(super) fn faults(graph: &Graph) -> Vec<String> {
    let mut faults = Vec::new();
    for (id, package) in graph.members() {
        let Some(stated) = package.rust else {
            faults.push(format!("{} states no rust-version", package.name));
            continue;
        };
        let newest = graph.reached(id).into_iter().filter_map(|(dependency, _)| Some((dependency.rust?, dependency)));
        if let Some((needed, dependency)) = newest.max_by_key(|(needed, _)| *needed)
            && needed > stated
        {
            let name = &dependency.name;
            faults.push(format!("{} states Rust {stated}, and {name} needs {needed}", package.name));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::{
        super::graph::{Package, RustVersion},
        *,
    };

    #[test]
    fn a_crate_states_at_least_what_its_dependencies_need() {
        let package = |name: &str, room: &str, rust: Option<&str>, dependencies: &[&str]| {
            let dependencies = dependencies.iter().map(|&dependency| dependency.to_owned()).collect();
            let rust = rust.and_then(RustVersion::read);
            let package =
                Package { name: name.to_owned(), room: room.to_owned(), mains: Vec::new(), rust, dependencies };
            (name.to_owned(), package)
        };
        let graph = Graph(
            [
                package("enough", "crates", Some("1.89"), &["by-way"]),
                package("too-old", "crates", Some("1.88.2"), &["by-way"]),
                package("none", "crates", None, &[]),
                package("by-way", "", None, &["kube"]),
                package("kube", "", Some("1.89.0"), &[]),
            ]
            .into(),
        );
        assert_eq!(
            faults(&graph),
            ["none states no rust-version", "too-old states Rust 1.88.2, and kube needs 1.89.0"]
        );
    }
}

//! Helm, for tests of charts here and in `bins/konverge`, and for the manifests that are rendered from its chart.

use std::path::PathBuf;

use konverge_testkit::build::{self, BuildError, Module, Program};

/// Builds it, unless it is in the cache.
pub(crate) fn helm() -> Result<PathBuf, BuildError> {
    let module = Module {
        name: "helm",
        announcement: "building Helm for tests of charts; takes some minutes, once".to_owned(),
        go_mod: include_str!("go.mod"),
        go_sum: include_str!("go.sum"),
        sources: &[],
        programs: vec![Program {
            name: "helm",
            package: "helm.sh/helm/v4/cmd/helm".to_owned(),
            linker: String::new(),
            tags: "",
        }],
    };
    Ok(build::ensure(&module)?.join("helm"))
}

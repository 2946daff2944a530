//! Prometheus' own evaluation of alerts, without a server.

use std::path::PathBuf;

use konverge_testkit::build::{self, BuildError, Module, Program};

const PROMTOOL: &str = "promtool";

/// The path of promtool, which evaluates alerting rules over given series. It is built if it is not in the cache. Blocks while it builds.
///
/// # Errors
/// If Go is missing or too old, or if the build fails.
pub fn promtool() -> Result<PathBuf, BuildError> {
    let module = Module {
        name: PROMTOOL,
        announcement:
            "building promtool from Go modules for tests of alerts. This happens once per machine and takes about two minutes."
                .to_owned(),
        go_mod: include_str!("../promtool/go.mod"),
        go_sum: include_str!("../promtool/go.sum"),
        sources: &[],
        programs: vec![Program {
            name: PROMTOOL,
            package: "github.com/prometheus/prometheus/cmd/promtool".to_owned(),
            linker: String::new(),
            // Evaluation needs no service discovery, whose cloud clients are most of its dependencies.
            tags: "remove_all_sd",
        }],
    };
    Ok(build::ensure(&module)?.join(PROMTOOL))
}

//! The verbs of `zopp` with those for Kubernetes: `zopp sync k8s` and `zopp diff k8s` become this program.

use std::process::ExitCode;

fn main() -> ExitCode {
    konverge_zopp_cli::run(&konverge_sync::ClusterVerbs)
}

//! The `zopp` command; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    konverge_zopp_cli::run(&konverge_zopp_cli::commands::k8s::OtherProgram)
}

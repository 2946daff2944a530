//! The `zopp` command; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    konverge_zopp_cli::main()
}

//! Makes the crate of an operator, as `konverge new` does, and builds much faster than `konverge` with all its jobs.

use std::process::ExitCode;

use clap::Parser;
use konverge_new::New;

/// Makes the crate of an operator: it compiles, is tested, and can be deployed
#[derive(Parser)]
#[command(name = "konverge-new", version, max_term_width = 120)]
struct Cli {
    #[command(flatten)]
    new: New,
}

fn main() -> ExitCode {
    Cli::parse().new.run()
}

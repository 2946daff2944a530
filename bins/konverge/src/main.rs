//! The program `konverge`.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use konverge_new::New;

/// Makes operators.
#[derive(Parser)]
#[command(version, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the crate of an operator: it compiles, is tested, and can be deployed
    New {
        #[command(flatten)]
        new: New,
        /// Folder to make it in; must not exist [default: NAME here]
        #[arg(long, value_name = "FOLDER")]
        path: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let Command::New { new, path } = Cli::parse().command;
    let folder = path.unwrap_or_else(|| PathBuf::from(&new.name));
    match new.write(&folder) {
        Ok(told) => print!("{told}"),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

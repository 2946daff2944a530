//! The servers of outside systems from the command line: build them into the cache.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use konverge_testkit_stores::{PublishedZopp, VaultServer};

/// Servers of outside systems for tests.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build a Vault into the cache, if it is not there, and print its path
    Vault,
    /// Build an OpenBao into the cache, if it is not there, and print its path: what `BAO_BIN` takes to have tests use it for Vault
    Openbao,
    /// Build the published server, command line and operator of zopp into the cache, if they are not there, and print their folder
    Zopp,
}

fn main() -> ExitCode {
    let program = match Cli::parse().command {
        Command::Vault => VaultServer::program().map_err(|error| error.to_string()),
        Command::Openbao => VaultServer::open_bao().map_err(|error| error.to_string()),
        Command::Zopp => {
            PublishedZopp::ensure().map(|found| found.folder().to_owned()).map_err(|error| error.to_string())
        }
    };
    match program {
        Ok(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

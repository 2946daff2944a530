//! The control plane from the command line: build it, find it, or have one to play with.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use konverge_testkit::{Assets, Binary, ControlPlane, Options};

/// A Kubernetes control plane for tests.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build its programs into the cache, if they are not there
    Setup,
    /// Run one until Ctrl-C and print its kubeconfig's path
    Up,
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Setup => setup(),
        Command::Up => up().await,
    };
    outcome.map_or_else(
        |error| {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn setup() -> Result<(), Box<dyn std::error::Error>> {
    let assets = Assets::find(&Binary::ALL)?;
    println!("the control plane is in {}", assets.folder().display());
    Ok(())
}

async fn up() -> Result<(), Box<dyn std::error::Error>> {
    let control_plane = ControlPlane::start(Options { controller_manager: true, ..Options::default() }).await?;
    println!("export KUBECONFIG={}", control_plane.kubeconfig().display());
    if let Some(kubectl) = control_plane.kubectl() {
        println!("# kubectl of the same version: {}", kubectl.display());
    }
    println!("# Ctrl-C ends it");
    tokio::signal::ctrl_c().await?;
    Ok(())
}

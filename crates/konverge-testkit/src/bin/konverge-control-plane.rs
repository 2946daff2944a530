//! The control plane from the command line: build it, have one to play with, or clean one up.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use konverge_testkit::{Assets, Binary, ControlPlane, Options, take_away_run};

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
    /// Take away what a test run made in a cluster that you named
    TakeAway {
        /// The cluster's kubeconfig
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
        /// The run, as the label konverge.dev/test-run names it
        run: String,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Setup => setup(),
        Command::Up => up().await,
        Command::TakeAway { kubeconfig, run } => clean(&kubeconfig, &run).await,
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
    let control_plane = ControlPlane::start(Options { controller_manager: true, ..Options::ours() }).await?;
    println!("export KUBECONFIG={}", control_plane.kubeconfig().display());
    if let Some(kubectl) = control_plane.kubectl() {
        println!("# kubectl of the same version: {}", kubectl.display());
    }
    println!("# Ctrl-C ends it");
    tokio::signal::ctrl_c().await?;
    Ok(())
}

async fn clean(kubeconfig: &Path, run: &str) -> Result<(), Box<dyn std::error::Error>> {
    let gone = take_away_run(kubeconfig, run).await?;
    println!("{} objects of run {run} are taken away", gone.len());
    for object in gone {
        println!("  {object}");
    }
    Ok(())
}

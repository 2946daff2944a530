//! The program `konverge`: all jobs in one process, and the crates of new operators.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use konverge_jobs::{Probe, Run};
use konverge_new::New;
use konverge_version::variables;

/// Runs the jobs of Konverge in one process, and makes operators.
#[derive(Parser)]
#[command(name = "konverge", version = konverge_version::line(), max_term_width = 120)]
pub(crate) enum Cli {
    /// Run jobs in one process: `konverge run --job "pull --server https://zopp.example.com" --job push --job roll`
    Run(Run),
    /// Ask programs whether they are ready; an image needs no shell for it
    Probe(Probe),
    /// Print what uses reloader, wave, vault-sync-operator or zopp in a cluster, what it becomes, and what is lost
    Migrate(konverge_kubectl::Migrate),
    /// Make the crate of an operator: it compiles, is tested, and can be deployed
    New(New),
}

#[tokio::main]
async fn main() -> ExitCode {
    let jobs = [konverge_pull::job(), konverge_push::job(), konverge_roll::job(), konverge_manage::job()];
    let tools = [&konverge_roll::migrate::ALL[..], &konverge_push::migrate::ALL, &konverge_pull::migrate::ALL].concat();
    let command = Cli::command().mut_subcommand("run", |run| run.after_help(konverge_jobs::about(&jobs)));
    let command = variables::ignore_empty(command);
    match Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit()) {
        Cli::Run(run) => run.run(&jobs).await,
        Cli::Probe(probe) => probe.run().await,
        Cli::Migrate(migrate) => migrate.run(&tools).await,
        Cli::New(new) => new.run(),
    }
}

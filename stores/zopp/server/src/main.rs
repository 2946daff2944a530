//! `zopp-server`: the command line of [`konverge_zopp_server`].

use std::process::ExitCode;

use clap::Parser;
use konverge_zopp_server::{args::Arguments, run::run};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zopp-server: {error}");
            ExitCode::FAILURE
        }
    }
}

//! `zopp-server`: the command line of [`konverge_zopp_server`].

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;
use konverge_zopp_server::{args::Arguments, run::run};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A file or a collector of logs takes colours for text; in a terminal NO_COLOR turns them off.
    let plain = !std::io::stderr().is_terminal();
    if plain { log.with_ansi(false) } else { log }.init();
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zopp-server: {error}");
            ExitCode::FAILURE
        }
    }
}

//! `zopp-server`: the command line of [`konverge_zopp_server`].

use std::{io::IsTerminal, process::ExitCode};

use konverge_zopp_server::{
    allocator,
    args::{Arguments, Command, LogFormat},
    run::run,
};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let arguments = Arguments::of_process();
    if let Command::Serve(_) = arguments.command {
        allocator::return_large_blocks();
    }
    start(arguments)
}

#[tokio::main]
async fn start(arguments: Arguments) -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A file or a collector of logs takes colours for text; in a terminal NO_COLOR turns them off.
    match arguments.log_format {
        LogFormat::Json => log.json().init(),
        LogFormat::Text if std::io::stderr().is_terminal() => log.init(),
        LogFormat::Text => log.with_ansi(false).init(),
    }
    let protection = konverge_zopp_memory::protect();
    tracing::debug!("{protection}");
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zopp-server: {error}");
            ExitCode::FAILURE
        }
    }
}

//! The openZro operator: openZro as custom resources of Kubernetes say.

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    konverge_manage::run(konverge_manage::config::Config::parse()).await
}

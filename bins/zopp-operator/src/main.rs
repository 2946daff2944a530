//! The zopp operator: zopp environments into annotated Kubernetes Secrets.

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    konverge_pull::run(konverge_pull::config::Config::parse()).await
}

//! The zopp operator: zopp environments into annotated Kubernetes Secrets.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    konverge_pull::run(konverge_pull::config::arguments(std::env::args_os())).await
}

//! The zopp operator: environments of zopp and secrets in Vault into annotated Kubernetes Secrets.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    konverge_pull::run(konverge_pull::config::arguments(std::env::args_os())).await
}

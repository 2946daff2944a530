//! The vault-sync-operator: Kubernetes Secrets into Vault and OpenBao, as annotations ask for.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    konverge_push::run(konverge_push::config::arguments(std::env::args_os())).await
}

//! The vault-rollout-operator: what uses a changed Secret or `ConfigMap` restarts exactly once.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    konverge_roll::run(konverge_roll::config::arguments(std::env::args_os())).await
}

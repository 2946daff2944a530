//! The openZro operator: openZro as custom resources of Kubernetes say.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    konverge_manage::run(konverge_manage::config::Config::of_line(std::env::args_os())).await
}

//! The vault-sync-operator: Kubernetes Secrets into Vault and OpenBao, as annotations ask for.

use std::process::ExitCode;

use konverge_push::runtime_info::RuntimeInfo;
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let config = konverge_push::config::arguments(std::env::args_os());
    let workers = RuntimeInfo::detect().workers();
    match Builder::new_multi_thread().worker_threads(workers).enable_all().build() {
        Ok(runtime) => runtime.block_on(konverge_push::run(config)),
        Err(error) => {
            eprintln!("vault-sync-operator: cannot start {workers} threads: {error}");
            ExitCode::FAILURE
        }
    }
}

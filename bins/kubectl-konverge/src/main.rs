//! The plugin of kubectl: how the objects stand that the operators of Konverge work on.

use std::process::ExitCode;

use konverge_kubectl::Examined;

#[tokio::main]
async fn main() -> ExitCode {
    let jobs: Vec<Box<dyn Examined>> = vec![
        Box::new(konverge_push::plugin::Push),
        Box::new(konverge_pull::plugin::Pull),
        Box::new(konverge_roll::plugin::Roll),
        Box::new(konverge_manage::plugin::Manage),
    ];
    konverge_kubectl::run(jobs, std::env::args_os()).await
}

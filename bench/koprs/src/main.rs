//! The peer that is written with koprs: the same work as the others, and the example configmapsync out of koprs's own helpers.

mod runs;
mod sync;

use anyhow::{Result, bail};
use konverge_bench_protocol::{Job, Tell, Work};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

#[tokio::main]
async fn main() -> Result<()> {
    let job = Job::from_arguments().map_err(anyhow::Error::msg)?;
    let kubeconfig = Kubeconfig::read_from(&job.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let tell = Tell::begin(&job);
    match job.work {
        Work::Runs | Work::Hold => runs::run(client, &job, tell).await?,
        Work::Sync => sync::run(client, &job, tell).await?,
        Work::HoldMetadata | Work::List => bail!("koprs watches whole objects only"),
    }
    Ok(())
}

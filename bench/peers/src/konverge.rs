//! The peer that is written with Konverge.

use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Parser;
use konverge::{Object, apply::Writable, prelude::*};
use konverge_bench_protocol::{Job, MARK, Tell, WORKERS, Work};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    options: Options,
}

#[tokio::main]
async fn main() -> Result<()> {
    let job = Job::from_arguments().map_err(anyhow::Error::msg)?;
    match job.work {
        Work::Runs | Work::Hold => run::<ConfigMap>(&job).await,
        Work::HoldMetadata => run::<PartialObjectMeta<ConfigMap>>(&job).await,
        Work::List | Work::Sync => bail!("other programs do that"),
    }
}

async fn run<K: Object + Writable + Resource<DynamicType = ()>>(job: &Job) -> Result<()> {
    let (tell, takes) = (Arc::new(Tell::begin(job)), job.takes);
    let reconcile = reconcile_fn(move |object: Arc<K>, _| {
        tell.run(object.meta().name.as_deref().unwrap_or_default(), object.annotations().get(MARK).map(String::as_str));
        async move {
            if !takes.is_zero() {
                tokio::time::sleep(takes).await;
            }
            Ok::<_, Error>(Action::Done)
        }
    });
    let flags =
        ["peer-konverge", "--address=127.0.0.1:0", "--kubeconfig", &job.kubeconfig, "--namespace", &job.namespace];
    let options = Program::try_parse_from(flags)?.options;
    let controller = Controller::<K, _>::watching(reconcile).workers(usize::from(WORKERS));
    konverge::operator!().controller(controller).assemble(options).await?.run().await?;
    Ok(())
}

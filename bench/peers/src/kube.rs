//! The peer that is written with `kube_runtime` alone, and the plain client that lists.

use std::{convert::Infallible, sync::Arc, time::Duration};

use anyhow::{Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_bench_protocol::{Job, MARK, Tell, WORKERS, Work};
use kube::{
    Api, Client, Config, ResourceExt,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{Controller, controller, controller::Action, watcher},
};

/// The objects of a page, as many as kube's watcher requests.
const PAGE: u32 = 500;

#[tokio::main]
async fn main() -> Result<()> {
    let job = Job::from_arguments().map_err(anyhow::Error::msg)?;
    let kubeconfig = Kubeconfig::read_from(&job.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let api = Api::<ConfigMap>::namespaced(Client::try_from(config)?, &job.namespace);
    let tell = Tell::begin(&job);
    match job.work {
        Work::Runs | Work::Hold => run(api, tell, job.takes).await,
        Work::List => return list(&api, &tell).await,
        Work::HoldMetadata | Work::Sync => bail!("other programs do that"),
    }
    Ok(())
}

struct Context {
    tell: Tell,
    takes: Duration,
}

async fn run(api: Api<ConfigMap>, tell: Tell, takes: Duration) {
    Controller::new(api, watcher::Config::default())
        .with_config(controller::Config::default().concurrency(WORKERS))
        .run(reconcile, |_, error: &Infallible, _| match *error {}, Arc::new(Context { tell, takes }))
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn reconcile(object: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Infallible> {
    context.tell.run(&object.name_any(), object.annotations().get(MARK).map(String::as_str));
    if !context.takes.is_zero() {
        tokio::time::sleep(context.takes).await;
    }
    Ok(Action::await_change())
}

/// Keeps all that it lists, as a cache does.
async fn list(api: &Api<ConfigMap>, tell: &Tell) -> Result<()> {
    let mut objects = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let listed = api.list(&page).await?;
        objects.extend(listed.items);
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    tell.all(objects.len());
    // The benchmark ends it, as it ends the others.
    std::future::pending().await
}

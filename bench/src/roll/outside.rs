//! An observer from outside: how often the pod template of each Deployment has changed, and when it did last.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::PodTemplateSpec};
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};

/// Watches the Deployments of a namespace until it is dropped.
pub(crate) struct Outside {
    seen: watch::Receiver<BTreeMap<String, Seen>>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Seen {
    template: PodTemplateSpec,
    changes: usize,
    at: Instant,
    is_noted: bool,
}

impl Outside {
    pub(crate) fn start(client: Client, namespace: &str) -> Self {
        let api = Api::<Deployment>::namespaced(client, namespace);
        let (sender, seen) = watch::channel(BTreeMap::new());
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                let at = Instant::now();
                if let Ok(watcher::Event::Apply(deployment) | watcher::Event::InitApply(deployment)) = event {
                    sender.send_modify(|seen| note(seen, deployment, at));
                }
            }
        });
        Self { seen, task }
    }

    /// How often the template of this one has changed since it was made.
    pub(crate) fn changes(&self, name: &str) -> usize {
        self.seen.borrow().get(name).map_or(0, |seen| seen.changes)
    }

    /// How often any has.
    pub(crate) fn all_changes(&self) -> usize {
        self.seen.borrow().values().map(|seen| seen.changes).sum()
    }

    /// How many bear the operator's record.
    pub(crate) fn noted(&self) -> usize {
        self.seen.borrow().values().filter(|seen| seen.is_noted).count()
    }

    /// Waits until the template of this one has changed so often; gives when it did.
    pub(crate) async fn changed(&self, name: &str, times: usize, limit: Duration) -> Result<Instant> {
        let mut seen = self.seen.clone();
        let is_so = |seen: &BTreeMap<String, Seen>| seen.get(name).is_some_and(|seen| seen.changes >= times);
        let seen = timeout(limit, seen.wait_for(is_so)).await.with_context(|| format!("{name} is not rolled"))??;
        Ok(seen.get(name).context("it was there")?.at)
    }

    /// Waits for this number of changes in all. Returns the time of the last one.
    pub(crate) async fn all_changed(&self, times: usize, limit: Duration) -> Result<Instant> {
        let mut seen = self.seen.clone();
        let count = |seen: &BTreeMap<String, Seen>| seen.values().map(|seen| seen.changes).sum::<usize>();
        let seen = timeout(limit, seen.wait_for(|seen| count(seen) >= times)).await;
        let seen = seen.with_context(|| format!("{} rollouts instead of {times}", self.all_changes()))??;
        seen.values().map(|seen| seen.at).max().context("there are Deployments")
    }
}

fn note(seen: &mut BTreeMap<String, Seen>, deployment: Deployment, at: Instant) {
    let name = deployment.name_any();
    let is_noted = deployment.annotations().contains_key("roll.konverge.dev/record");
    let template = deployment.spec.map(|spec| spec.template).unwrap_or_default();
    let known = seen.entry(name).or_insert_with(|| Seen { template: template.clone(), changes: 0, at, is_noted });
    known.is_noted = is_noted;
    if known.template != template {
        known.template = template;
        known.changes += 1;
        known.at = at;
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.task.abort();
    }
}

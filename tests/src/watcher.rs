//! An observer from outside: what each Secret of a namespace holds, and since when it is seen to.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use konverge_testkit::eventually;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{sync::watch, task::JoinHandle, time::Instant};

/// A Secret as it was seen.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its keys and values.
    pub data: BTreeMap<String, Vec<u8>>,
    /// Its resource version.
    pub resource_version: String,
    /// When this state was seen first.
    pub at: Instant,
}

/// Watches the Secrets of a namespace.
pub struct Watcher {
    seen: watch::Receiver<BTreeMap<String, Seen>>,
    task: JoinHandle<()>,
}

impl Watcher {
    /// Begins to watch.
    pub fn start(client: Client, namespace: &str) -> Self {
        let api = Api::<Secret>::namespaced(client, namespace);
        let (sender, seen) = watch::channel(BTreeMap::new());
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                let at = Instant::now();
                match event {
                    Ok(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret)) => {
                        let name = secret.name_any();
                        let resource_version = secret.resource_version().unwrap_or_default();
                        let data = secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
                        let now = Seen { data: data.collect(), resource_version, at };
                        sender.send_modify(|seen| {
                            seen.insert(name, now);
                        });
                    }
                    Ok(watcher::Event::Delete(secret)) => sender.send_modify(|seen| {
                        seen.remove(&secret.name_any());
                    }),
                    // The next list delivers the changes that an interrupted watch missed.
                    Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
                }
            }
        });
        Self { seen, task }
    }

    /// The Secret as it is seen now.
    pub fn now(&self, name: &str) -> Option<Seen> {
        self.seen.borrow().get(name).cloned()
    }

    /// Waits until the Secret is seen to be right.
    pub async fn until(&self, name: &str, limit: Duration, right: impl Fn(&Seen) -> bool) -> Result<Seen> {
        let seen = eventually(limit, || std::future::ready(self.now(name).filter(&right))).await;
        seen.with_context(|| {
            let held = self.now(name).map(|seen| seen.data.keys().cloned().collect::<Vec<_>>());
            format!("secret {name} was not seen to be right; it is seen with the keys {held:?}")
        })
    }

    /// Waits until the Secret holds exactly these keys and values.
    pub async fn holds(&self, name: &str, limit: Duration, expected: &[(&str, &str)]) -> Result<Seen> {
        let expected: BTreeMap<String, Vec<u8>> =
            expected.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        self.until(name, limit, |seen| seen.data == expected).await
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

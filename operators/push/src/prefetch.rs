//! Prefetching Secrets, where many runs need Secrets of one namespace at once, as at each start.
//!
//! The API server needs as much time for one Secret as for a page of them. At the start in a cluster with a thousand bindings, reading Secrets is
//! half of all the work. So while many runs wait, the operator reads the Secrets of a namespace in pages, if at least half of them are used.
//! Both the pages and the runs come in the order of names.
//!
//! This is no cache. A Secret is handed over once, only in the version that a watch has shown last, and dropped if no run takes it within half
//! a minute. Unused Secrets are dropped at once, and if a page shows that they are the majority, the reading stops. A namespace is read like this
//! at most once a minute. A run reads a Secret that was not prefetched by itself, so nothing depends on the pages.

mod pager;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use konverge_core::error::in_one_line;
use konverge_runtime::Queue;
use kube::{Api, Client, api::ListParams};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    bindings::Bindings,
    object::{ObjectRef, SecretRef},
    secrets::{Data, values},
};
use pager::{Answer, NamespacePager, Page};

/// The prefetch begins if at least this many runs are at work or wait, and at least this many Secrets of the namespace are used.
const MANY: usize = 64;

/// The prefetch goes on as long as at least this many runs are at work or wait.
const SOME: usize = 16;

/// A Secret that no run has fetched for this long is dropped.
const LINGER: Duration = Duration::from_secs(30);

/// The Secrets in which Helm keeps whole charts, up to 1 MiB each, are in no page.
const WITHOUT: &str = "type!=helm.sh/release.v1";

/// The pause from the beginning of one prefetch of a namespace to the next.
const PAUSE: Duration = Duration::from_mins(1);

/// A handle. Clones are handles to the same prefetch.
#[derive(Clone)]
pub struct Prefetch(Arc<Shared>);

struct Shared {
    client: Client,
    bindings: Arc<Bindings>,
    queue: Queue<ObjectRef>,
    /// By namespace.
    pagers: Mutex<HashMap<String, NamespacePager<Data>>>,
    begun: Notify,
}

impl Prefetch {
    /// Reads nothing yet. The task drops Secrets that no run fetches, for ever.
    pub fn new(
        client: Client,
        bindings: Arc<Bindings>,
        queue: Queue<ObjectRef>,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let prefetch =
            Self(Arc::new(Shared { client, bindings, queue, pagers: Mutex::default(), begun: Notify::new() }));
        (prefetch.clone(), prefetch.keep_tidy())
    }

    /// Returns the data of the Secret in the version that was seen last, if it needs no request of its own. Prefetches if that saves requests.
    pub(crate) async fn fetch(&self, secret: &SecretRef, version: &str) -> Option<Data> {
        loop {
            match self.step(secret, version) {
                Answer::Fetched(data) => return Some(data),
                Answer::Alone => return None,
                // Where it has ended there is nothing to wait for, which the next step finds.
                Answer::Wait(mut turned) => drop(turned.changed().await),
                Answer::Read(token, limit) => self.read(&secret.namespace, token, limit).await,
            }
        }
    }

    fn step(&self, secret: &SecretRef, version: &str) -> Answer<Data> {
        let now = Instant::now();
        let mut pagers = self.pagers();
        if let Some(pager) = pagers.get_mut(&secret.namespace) {
            return pager.fetch(&secret.name, version, self.0.queue.is_depth_at_least(SOME));
        }
        if !self.0.queue.is_depth_at_least(MANY) || !self.0.bindings.are_mostly_used(&secret.namespace, MANY) {
            return Answer::Alone;
        }
        self.0.begun.notify_one();
        pagers.entry(secret.namespace.clone()).or_insert_with(|| NamespacePager::new(now)).fetch(
            &secret.name,
            version,
            true,
        )
    }

    async fn read(&self, namespace: &str, token: Option<String>, limit: u32) {
        // Also if this run is broken off in the midst of it.
        let mut reading = Reading { prefetch: self, namespace, is_over: false };
        let mut parameters = ListParams::default().limit(limit).fields(WITHOUT);
        if let Some(token) = &token {
            parameters = parameters.continue_token(token);
        }
        match Api::<Secret>::namespaced(self.0.client.clone(), namespace).list(&parameters).await {
            Ok(list) => {
                let token = list.metadata.continue_.filter(|token| !token.is_empty());
                let page = self.page(namespace, list.items, token);
                if let Some(pager) = self.pagers().get_mut(namespace) {
                    pager.turn(page, Instant::now());
                }
                reading.is_over = true;
            }
            Err(error) => {
                tracing::debug!(namespace, "secrets are read one by one: {}", in_one_line(&error));
            }
        }
    }

    fn page(&self, namespace: &str, secrets: Vec<Secret>, token: Option<String>) -> Page<Data> {
        let (seen, last) = (secrets.len(), secrets.last().and_then(|secret| secret.metadata.name.clone()));
        let (mut wanted, mut bytes) = (Vec::new(), 0);
        for secret in secrets {
            bytes += secret.data.iter().flatten().map(|(_, value)| value.0.len()).sum::<usize>();
            let (name, version) = (secret.metadata.name.clone(), secret.metadata.resource_version.clone());
            // An unused value is wiped, too.
            let data = values(secret);
            let Some((name, version)) = name.zip(version) else { continue };
            if self.0.bindings.is_used(&SecretRef { namespace: namespace.to_owned(), name: name.clone() }) {
                wanted.push((name, version, data));
            }
        }
        Page { wanted, last, seen, bytes, token }
    }

    async fn keep_tidy(self) {
        loop {
            self.0.begun.notified().await;
            while !self.pagers().is_empty() {
                let now = Instant::now();
                // A Secret that is read during the sleep is due after it.
                let due = self.pagers().values().filter_map(NamespacePager::oldest).min().unwrap_or(now) + LINGER;
                sleep_until(due).await;
                let now = Instant::now();
                let before = |age: Duration| now.checked_sub(age).unwrap_or(now);
                self.pagers().retain(|_, pager| {
                    pager.tidy(before(LINGER));
                    !pager.is_over(before(PAUSE))
                });
            }
        }
    }

    fn pagers(&self) -> MutexGuard<'_, HashMap<String, NamespacePager<Data>>> {
        self.0.pagers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read of a page that is under way. If it fails or is cancelled, the prefetch of the namespace stops.
struct Reading<'a> {
    prefetch: &'a Prefetch,
    namespace: &'a str,
    /// Whether the page has come. Another run may read the next one already.
    is_over: bool,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(pager) = self.prefetch.pagers().get_mut(self.namespace)
        {
            pager.stop();
        }
    }
}

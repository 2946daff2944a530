//! Caches: what the API server has, kept up to date by a watch, shared by all controllers of a program.
//!
//! There is one watch per kind and selection, however many controllers want it ([`Caches::cache`]). Reads ([`Store`]) never ask the
//! API server. Writes of this process pass through the cache too ([`Store::writing`]), so that a controller always reads what it
//! wrote and is not woken by its own echo.
//!
//! Of `managedFields`, only the entry of the program's own field manager is kept: it tells which fields are ours, and the others
//! are often larger than the object.

mod caching;
mod change;
mod declared;
mod entries;
mod index;
pub(crate) mod metrics;
mod objects;
mod state;
mod store;
mod unobserved_writes;

use std::{
    any::{Any, TypeId},
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    pin::Pin,
    sync::Arc,
};

use futures::{Stream, StreamExt};
use kube::Client;

pub use caching::Caching;
pub use change::{Change, Predicate};
pub use index::Index;
pub use metrics::CacheMetrics;
pub use store::{Store, Subscriber, Writing};

use crate::{
    manager::Manager,
    object::{Object, Scope},
    watch::{self, Guarded, Observed, WatchHealth, WatchOptions},
};
use state::Seen;

/// Which objects a cache holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Selection {
    /// Only these namespaces; all, where none is named. One watch each. Kinds without namespaces are watched whole.
    pub namespaces: Vec<String>,
    /// Only objects with these labels, in the syntax of `kubectl -l`.
    pub label_selector: Option<String>,
    /// Only objects with these fields, in the syntax of `kubectl --field-selector`.
    pub field_selector: Option<String>,
}

konverge_core::with!(Selection);

impl Selection {
    /// Returns the normal form of the selection, so that equal selections share a cache.
    fn normal<K: Object>(&self) -> Self {
        let mut normal = self.clone();
        normal.namespaces.sort();
        normal.namespaces.dedup();
        if !K::Scope::IS_NAMESPACED {
            normal.namespaces.clear();
        }
        normal
    }
}

/// A cache: what it holds, and how its watches are doing. Clones are handles to the same cache.
pub struct Cache<K> {
    /// The objects.
    pub store: Store<K>,
    health: Vec<WatchHealth>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), health: self.health.clone() }
    }
}

impl<K> Cache<K> {
    /// Whether every object was seen since the start.
    pub fn is_synced(&self) -> bool {
        self.health.iter().all(WatchHealth::is_synced)
    }

    /// Whether the API server does not serve the kind, which only an [optional](Caching::optional) kind may be.
    pub fn is_missing(&self) -> bool {
        self.health.iter().any(WatchHealth::is_missing)
    }

    /// Returns as soon as the kind [is missing](Self::is_missing), or is not.
    pub async fn when_missing(&self, is_missing: bool) {
        for health in &self.health {
            health.when_missing(is_missing).await;
        }
    }

    /// Returns as soon as every object was seen once.
    pub async fn synced(&self) {
        for health in &self.health {
            health.synced().await;
        }
    }
}

/// The caches of a program.
pub struct Caches {
    client: Client,
    field_manager: String,
    metrics: CacheMetrics,
    begun: HashMap<(TypeId, u64), Box<dyn Any + Send>>,
    watches: Vec<Watch>,
    /// Names of definitions, such as `greetings.example.io`.
    ready_before: HashSet<String>,
}

/// A watch that waits to be run.
struct Watch {
    name: String,
    definition: String,
    warns_if_missing: bool,
    health: WatchHealth,
    run: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Caches {
    /// No caches yet. `field_manager` is the one whose `managedFields` are kept.
    pub fn new(client: Client, field_manager: impl Into<String>, metrics: &CacheMetrics) -> Self {
        Self {
            client,
            field_manager: field_manager.into(),
            metrics: metrics.clone(),
            begun: HashMap::new(),
            watches: Vec::new(),
            ready_before: HashSet::new(),
        }
    }

    /// The cache of a kind and selection: the one there is, or a new one.
    pub fn cache<K: Object>(&mut self, kind: &K::DynamicType, selection: &Selection) -> Cache<K> {
        self.cache_as(kind, selection, &Caching::default())
    }

    /// [`cache`](Self::cache) that is filled as `caching` says; shared with those who say the same, but for their indexes.
    pub fn cache_as<K: Object>(
        &mut self,
        kind: &K::DynamicType,
        selection: &Selection,
        caching: &Caching<K>,
    ) -> Cache<K> {
        let selection = &selection.normal::<K>();
        let mut hasher = DefaultHasher::new();
        let manager = caching.field_manager.as_ref().unwrap_or(&self.field_manager);
        (kind, selection, caching.watching, manager).hash(&mut hasher);
        let id = (TypeId::of::<K>(), hasher.finish());
        let known = self.begun.get(&id).and_then(|cache| cache.downcast_ref::<Cache<K>>());
        let cache = match known.filter(|_| caching.transform.is_none()) {
            Some(cache) => cache.clone(),
            None => self.begin::<K>(kind, selection, caching),
        };
        if caching.transform.is_none() {
            self.begun.insert(id, Box::new(cache.clone()));
        }
        for declare in &caching.indexes {
            declare(&cache.store);
        }
        cache
    }

    fn begin<K: Object>(&mut self, kind: &K::DynamicType, selection: &Selection, caching: &Caching<K>) -> Cache<K> {
        let manager = caching.field_manager.as_ref().unwrap_or(&self.field_manager).clone();
        let store = Store::<K>::transforming(manager.clone(), caching.transform.clone());
        let name = K::plural(kind).into_owned();
        let metered = store.clone();
        self.metrics.measure(&name, move || (metered.len(), metered.undecodable_len()));
        let namespaces = match selection.namespaces.as_slice() {
            [] => vec![None],
            named => named.iter().cloned().map(Some).collect(),
        };
        let mut cache = Cache { store, health: Vec::new() };
        for namespace in namespaces {
            let options = WatchOptions {
                namespace: namespace.clone(),
                label_selector: selection.label_selector.clone(),
                field_selector: selection.field_selector.clone(),
                timeout: caching.watching.timeout,
                initial_list: caching.watching.initial_list,
                optional: caching.watching.optional,
                ..WatchOptions::default()
            };
            let (observed, health) = watch::observe::<Guarded<K>>(self.client.clone(), kind, &options);
            let filled = Filled { store: cache.store.clone(), namespace };
            cache.health.push(health.clone());
            let seen = self.metrics.events(&name);
            self.watches.push(Watch {
                name: format!("cache {name}"),
                definition: format!("{name}.{}", K::group(kind)),
                warns_if_missing: caching.watching.optional && caching.watching.warns_if_missing,
                health,
                run: Box::pin(watch::keeping(
                    Arc::from(manager.as_str()),
                    filled.by(observed.inspect(move |observed| seen.observed(observed))),
                )),
            });
        }
        cache
    }

    /// Runs the watches for as long as the future is polled, where no manager runs them, such as in a test of one reconcile.
    pub fn run(self) -> impl Future<Output = ()> + Send {
        let watches = futures::future::join_all(self.watches.into_iter().map(|watch| watch.run));
        async move {
            watches.await;
        }
    }

    /// Lets the program be ready before the caches of these kinds are complete, which are named as their definitions are, such as
    /// `greetings.example.io`. For kinds that the program itself converts between versions: the API server can list them only with
    /// the help of a replica, and calls none that is not ready. Call it before [`require_within`](Self::require_within).
    pub fn ready_before(&mut self, definitions: impl IntoIterator<Item = String>) {
        self.ready_before.extend(definitions);
    }

    /// Ends the program unless all caches are complete within `limit`.
    ///
    /// Those of kinds that the program itself converts do not count; see [`ready_before`](Self::ready_before). The API server can list them
    /// only once it has a route to a replica, and a program that ends takes that route away. Their state stays a warning of the checks.
    pub fn require_within(&self, manager: &mut Manager, limit: std::time::Duration) {
        let required = self.watches.iter().filter(|watch| !self.ready_before.contains(&watch.definition));
        let watches: Vec<_> = required.map(|watch| (watch.name.clone(), watch.health.clone())).collect();
        let waiting = watches.clone();
        let synced = async move {
            for (_, health) in &waiting {
                health.synced().await;
            }
        };
        let missing = move || {
            let incomplete = watches.iter().filter(|(_, health)| !health.is_synced());
            let told: Vec<_> = incomplete
                .map(|(name, health)| format!("{name}: {}", health.check().err().unwrap_or_default()))
                .collect();
            told.join("; ")
        };
        manager.require_within(limit, synced, missing);
    }

    /// Lets the manager run the watches, and makes it unready while one of them is not complete or fails.
    pub fn install(self, manager: &mut Manager) {
        for Watch { name, definition, warns_if_missing, health, run } in self.watches {
            if warns_if_missing {
                let (health, definition) = (health.clone(), definition.clone());
                manager.checks().warning(format!("kind {definition}"), move || {
                    let missing = format!(
                        "the API server does not serve {definition}, or does not allow to list it; it is watched once that changes"
                    );
                    if health.is_missing() { Err(missing) } else { Ok(()) }
                });
            }
            if self.ready_before.contains(&definition) {
                manager.checks().warning(name.clone(), move || health.check());
            } else {
                manager.checks().readiness(name.clone(), move || health.check());
            }
            manager.task(name, run);
        }
    }
}

/// A store, or the part of it in one namespace, that a watch fills.
struct Filled<K> {
    store: Store<K>,
    namespace: Option<String>,
}

impl<K: Object> Filled<K> {
    async fn by(self, observed: impl Stream<Item = Observed<Guarded<K>>> + Send) {
        let Self { store, namespace } = self;
        let namespace = namespace.as_deref();
        let mut observed = std::pin::pin!(observed);
        let mut missing = HashSet::new();
        let mut is_filled = false;
        while let Some(observed) = observed.next().await {
            match observed {
                Observed::Init => missing = store.begin_list(namespace),
                Observed::InitApply(object) => {
                    if let Some(key) = crate::object::ObjectKey::of(&object) {
                        missing.remove(&key);
                    }
                    let seen = Seen::Applied { object, listed: true };
                    if is_filled { store.see(seen) } else { store.fill(seen) }
                }
                Observed::InitDone(version) => {
                    store.end_list(namespace, version, std::mem::take(&mut missing));
                    if !std::mem::replace(&mut is_filled, true) {
                        store.filled(namespace);
                    }
                }
                Observed::Apply(object) => store.see(Seen::Applied { object, listed: false }),
                Observed::Delete(object) => store.see(Seen::Deleted(object)),
                Observed::Bookmark(version) => store.passed(namespace, version),
                Observed::Opened => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Stores that custom resources connect while the process runs.
//!
//! A hub keeps its upstream while custom resources create, change and delete the connection through which the upstream reads.

use std::{
    collections::{BTreeSet, HashMap},
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use konverge_core::{allow, digest::ContentDigest, reverse_index::ReverseIndex};
use tokio::{sync::watch, time::Instant};

use super::{Cause, ConnectionName, Failure, Reference, Revision, Snapshot, Source, Upstream};
use crate::{bindings::SecretRef, hub::Feed, messages};

/// A connection to a store.
pub struct Connection {
    /// The store, as the identity of the connection.
    pub source: Arc<dyn Source>,
    /// The namespaces whose Secrets may be filled through it.
    pub namespaces: Namespaces,
    /// A digest of the specification and of the Secrets that the source is built from.
    pub made_of: ContentDigest,
}

/// The namespaces that may use a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// The namespace of the custom resource.
    Own,
    /// Those whose names match a pattern, and those that a selector has chosen.
    Selected {
        /// The patterns. `*` matches any characters.
        patterns: Vec<String>,
        /// The names of the others.
        selected: BTreeSet<String>,
    },
}

/// A connection, or why there is none.
pub type Connected = Result<Arc<Connection>, Arc<Failure>>;

/// The connections of custom resources.
#[derive(Default)]
pub struct Connections(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    connected: HashMap<ConnectionName, watch::Sender<Connected>>,
    /// The Secrets that each connection is made of.
    made_of: ReverseIndex<ConnectionName, SecretRef>,
    /// Whether the records of all Secrets were recalled.
    is_complete: bool,
}

impl Connections {
    /// Returns the connection with this name.
    pub fn get(&self, name: &ConnectionName) -> Option<Arc<Connection>> {
        self.lock().connected.get(name)?.borrow().as_ref().ok().cloned()
    }

    /// Puts a connection in the place of another one. `records` are the stores' own records on all Secrets so far. All Secrets that are filled through
    /// it look again. Returns the former connection.
    pub fn connect(
        &self,
        name: &ConnectionName,
        connection: Arc<Connection>,
        records: &[String],
    ) -> Option<Arc<Connection>> {
        let inner = &mut *self.lock();
        for record in records {
            connection.source.recall(record);
        }
        if inner.is_complete {
            connection.source.records_are_complete();
        }
        inner.sender(name).send_replace(Ok(connection)).ok()
    }

    /// Ends a connection. Secrets keep their data and report the failure. Returns the former connection.
    pub fn disconnect(&self, name: &ConnectionName, failure: Failure) -> Option<Arc<Connection>> {
        let failure = Arc::new(failure);
        let inner = &mut *self.lock();
        let sender = inner.sender(name);
        let is_same = |before: &Arc<Failure>| before.statement == failure.statement;
        if sender.borrow().as_ref().is_err_and(is_same) {
            return None;
        }
        sender.send_replace(Err(failure)).ok()
    }

    /// Records the Secrets that a connection is made of. A connection without Secrets may be forgotten.
    pub fn uses(&self, name: &ConnectionName, secrets: impl IntoIterator<Item = SecretRef>) {
        self.lock().made_of.set(name, secrets.into_iter().map(|secret| (secret, ())));
    }

    /// Returns the connections that are made of the Secret.
    pub fn made_of(&self, secret: &SecretRef) -> Vec<ConnectionName> {
        self.lock().made_of.referrers(secret).cloned().collect()
    }

    /// Returns why a namespace may not use the connection of a reference.
    pub fn refusal(&self, reference: &Reference, namespace: &str) -> Option<Failure> {
        let name = reference.connection()?;
        let is_admitted = match (&name.namespace, self.get(name)) {
            (Some(own), _) => own == namespace,
            // Without a connection, there is another failure to tell.
            (None, connection) => connection.is_none_or(|connection| connection.namespaces.admit(namespace)),
        };
        (!is_admitted).then(|| Failure {
            statement: messages::namespace_not_admitted(name, namespace),
            kind: "NamespaceNotAdmitted",
            cause: Cause::Refused,
        })
    }

    pub(super) fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.lock().connections().map(|connection| Arc::clone(&connection.source)).collect()
    }

    pub(super) fn open(&self, reference: &Reference, name: &ConnectionName) -> Box<dyn Upstream> {
        let connected = self.lock().sender(name).subscribe();
        Box::new(Through { reference: reference.clone(), connected, opened: Mutex::default() })
    }

    pub(super) fn recall(&self, record: &str) {
        self.lock().connections().for_each(|connection| connection.source.recall(record));
    }

    pub(super) fn records_are_complete(&self) {
        let inner = &mut *self.lock();
        inner.is_complete = true;
        inner.connections().for_each(|connection| connection.source.records_are_complete());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn sender(&mut self, name: &ConnectionName) -> &watch::Sender<Connected> {
        if !self.connected.contains_key(name) {
            self.connected.retain(|_, sender| sender.receiver_count() > 0 || sender.borrow().is_ok());
        }
        self.connected.entry(name.clone()).or_insert_with(|| watch::channel(Err(Arc::new(missing(name)))).0)
    }

    fn connections(&self) -> impl Iterator<Item = Arc<Connection>> {
        self.connected.values().filter_map(|sender| sender.borrow().as_ref().ok().cloned())
    }
}

impl Namespaces {
    fn admit(&self, namespace: &str) -> bool {
        match self {
            // The name of the connection has the namespace.
            Self::Own => true,
            Self::Selected { patterns, selected } => {
                selected.contains(namespace) || patterns.iter().any(|pattern| allow::matches(pattern, namespace))
            }
        }
    }
}

/// Returns the failure while no custom resource of this name has connected anything.
pub fn missing(name: &ConnectionName) -> Failure {
    Failure { statement: messages::no_source(name), kind: "NoSource", cause: Cause::Refused }
}

/// A content at the end of a connection.
struct Through {
    reference: Reference,
    connected: watch::Receiver<Connected>,
    opened: Mutex<Option<Opened>>,
}

struct Opened {
    connection: Arc<Connection>,
    upstream: Arc<dyn Upstream>,
}

impl Through {
    /// Returns the content in the store that is connected now.
    fn upstream(&self) -> Result<Arc<dyn Upstream>, Failure> {
        let connected = self.connected.borrow().clone();
        let connection = connected.map_err(|failure| Failure::clone(&failure))?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Opened { connection: of, upstream }) = &*opened
            && Arc::ptr_eq(of, &connection)
        {
            return Ok(Arc::clone(upstream));
        }
        let scheme = connection.source.scheme();
        let opens = if scheme == self.reference.scheme() {
            connection.source.open(&self.reference)
        } else {
            Err(messages::other_scheme(&self.reference, scheme))
        };
        let refused = |statement| Failure { statement, kind: "NotInStore", cause: Cause::Refused };
        let upstream: Arc<dyn Upstream> = opens.map_err(refused)?.into();
        *opened = Some(Opened { connection, upstream: Arc::clone(&upstream) });
        Ok(upstream)
    }
}

#[async_trait]
impl Upstream for Through {
    async fn fetch(&self) -> Result<Snapshot, Failure> {
        self.upstream()?.fetch().await
    }

    async fn is_current(&self, tag: &str) -> bool {
        match self.upstream() {
            Ok(upstream) => upstream.is_current(tag).await,
            Err(_) => false,
        }
    }

    async fn follow(&self, feed: Feed) {
        let mut connected = self.connected.clone();
        loop {
            connected.mark_unchanged();
            let follow = async {
                match self.upstream() {
                    Ok(upstream) => upstream.follow(feed.clone()).await,
                    Err(_) => feed.poll(feed.poll_interval()).await,
                }
            };
            tokio::select! {
                () = follow => return,
                changed = connected.changed() => if changed.is_err() {
                    // The process ends.
                    return pending().await;
                },
            }
            feed.reconnected();
        }
    }

    fn answered(&self) -> Option<Instant> {
        self.upstream().ok()?.answered()
    }

    fn accepted(&self) -> Option<Revision> {
        self.upstream().ok()?.accepted()
    }

    fn accept(&self, snapshot: &Snapshot) {
        if let Ok(upstream) = self.upstream() {
            upstream.accept(snapshot);
        }
    }

    fn record(&self, snapshot: &Snapshot) -> Option<String> {
        self.upstream().ok()?.record(snapshot)
    }

    fn recorded(&self, record: &str) -> Option<Revision> {
        self.upstream().ok()?.recorded(record)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use konverge_core::{SecretValue, digest::DigestKey};
    use prometheus_client::registry::Registry;
    use tokio::{sync::mpsc, task::yield_now, time::timeout};

    use super::*;
    use crate::{
        hub::Hubs,
        metrics::Metrics,
        reasons,
        source::{Sources, in_memory::InMemory},
    };

    fn name(namespace: Option<&str>) -> ConnectionName {
        ConnectionName { namespace: namespace.map(str::to_owned), name: "main".to_owned() }
    }

    fn connection(source: impl Source + 'static, namespaces: Namespaces) -> Arc<Connection> {
        let made_of = DigestKey::new([0; 32]).digest([]);
        Arc::new(Connection { source: Arc::new(source), namespaces, made_of })
    }

    fn values(value: &str) -> BTreeMap<String, SecretValue> {
        [("KEY".to_owned(), SecretValue::from(value.to_owned()))].into()
    }

    #[tokio::test]
    async fn a_content_goes_on_when_its_connection_comes_changes_and_goes() {
        let reference = "memory://a/one".parse::<Reference>().unwrap().through(name(Some("team")));
        let sources = Sources::default();
        let (sender, mut woken) = mpsc::unbounded_channel();
        let wake = Arc::new(move |reference: &Reference| sender.send(reference.clone()).unwrap());
        let metrics = Metrics::new(&mut Registry::default());
        let hubs = Hubs::new(sources.clone(), Duration::from_hours(1), wake, metrics);
        let hub = hubs.subscribe(&reference).unwrap();
        // One change may wake more than once.
        let mut fails_by = async |kind: &str| {
            while hub.snapshot(None).await.err().is_none_or(|failure| failure.kind != kind) {
                timeout(Duration::from_secs(10), woken.recv()).await.unwrap().unwrap();
            }
        };
        fails_by("NoSource").await;

        let connections = sources.connections();
        for value in ["first", "second"] {
            let store = InMemory::new("memory");
            store.set(&reference, values(value));
            connections.connect(&name(Some("team")), connection(store, Namespaces::Own), &[]);
            timeout(Duration::from_secs(10), async {
                while !hub
                    .snapshot(None)
                    .await
                    .is_ok_and(|snapshot| snapshot.values["KEY"].expose() == value.as_bytes())
                {
                    yield_now().await;
                }
            })
            .await
            .unwrap();
        }
        let other = connection(InMemory::new("other"), Namespaces::Own);
        connections.connect(&name(Some("team")), other, &[]);
        fails_by("NotInStore").await;

        let missing = missing(&name(Some("team")));
        assert!(connections.disconnect(&name(Some("team")), missing.clone()).is_some());
        assert!(connections.disconnect(&name(Some("team")), missing).is_none(), "nothing has changed");
        fails_by("NoSource").await;
    }

    #[test]
    fn a_connection_is_for_its_namespaces_alone() {
        let connections = Connections::default();
        let refusal = |of: Option<&str>, namespace: &str| {
            let reference = "memory://a/one".parse::<Reference>().unwrap().through(name(of));
            connections.refusal(&reference, namespace).map(|failure| failure.statement.reason)
        };
        assert_eq!(refusal(Some("team"), "team"), None);
        assert_eq!(refusal(Some("team"), "other"), Some(reasons::NOT_ALLOWED));
        assert_eq!(refusal(None, "team-a"), None, "that there is none is told otherwise");
        let namespaces =
            Namespaces::Selected { patterns: vec!["team-*".to_owned()], selected: ["shop".to_owned()].into() };
        connections.connect(&name(None), connection(InMemory::new("memory"), namespaces), &[]);
        for (namespace, expected) in
            [("team-a", None), ("shop", None), ("shop-2", Some(reasons::NOT_ALLOWED)), ("", Some(reasons::NOT_ALLOWED))]
        {
            assert_eq!(refusal(None, namespace), expected, "{namespace}");
        }
        assert!(connections.refusal(&"memory://a/one".parse().unwrap(), "any").is_none());
    }

    #[test]
    fn a_connection_is_found_by_the_secrets_that_it_is_made_of() {
        let connections = Connections::default();
        let secret = |name: &str| SecretRef { namespace: "team".to_owned(), name: name.to_owned() };
        connections.uses(&name(Some("team")), [secret("one"), secret("two")]);
        connections.uses(&name(None), [secret("two")]);
        assert_eq!(connections.made_of(&secret("two")).len(), 2);
        connections.uses(&name(Some("team")), [secret("one")]);
        assert_eq!(connections.made_of(&secret("two")), [name(None)]);
        assert_eq!(connections.made_of(&secret("one")), [name(Some("team"))]);
        assert!(connections.made_of(&secret("three")).is_empty());
    }
}

//! The stores that Secrets are filled from.
//!
//! A store is one [`Source`] that opens a [`Reference`] as an [`Upstream`]. A hub ([`crate::hub`]) shares each upstream among all Secrets that
//! name it. Another store needs one file that implements both traits, and one line in `run.rs` that registers it. Custom resources connect further
//! stores while the process runs ([`Connections`]).

pub mod connections;
pub mod in_memory;
pub mod reference;

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use futures::future::join_all;
use konverge_apply::Statement;
use konverge_core::SecretValue;
use tokio::time::Instant;

pub use self::{
    connections::{Connection, Connections, Namespaces},
    reference::{ConnectionName, Reference, ReferenceError},
};
use crate::{hub::Feed, messages};

/// A store.
#[async_trait]
pub trait Source: Send + Sync {
    /// Returns the scheme of its references, such as `zopp`.
    fn scheme(&self) -> &'static str;

    /// Opens the content that the reference names. Sends nothing.
    ///
    /// # Errors
    /// A statement for the owner of the Secret, if the reference cannot name anything in this store.
    fn open(&self, reference: &Reference) -> Result<Box<dyn Upstream>, Statement>;

    /// Receives the record of a Secret, before [`records_are_complete`](Self::records_are_complete) and whenever the watch shows it. It may be of
    /// another store, and anybody may have written it.
    fn recall(&self, _record: &str) {}

    /// Tells that the records of all Secrets were recalled.
    fn records_are_complete(&self) {}

    /// Asks the store whether it lets this identity in.
    async fn check(&self) -> Result<(), Statement> {
        Ok(())
    }

    /// The connection is not needed any more.
    async fn close(&self) {}
}

/// One content of a store.
#[async_trait]
pub trait Upstream: Send + Sync {
    /// Reads the content. Cancelled if nobody waits for it any more.
    async fn fetch(&self) -> Result<Snapshot, Failure>;

    /// Asks, by one small request, whether the content with this tag is still current. Returns `false` if the store cannot tell.
    async fn is_current(&self, _tag: &str) -> bool {
        false
    }

    /// Follows the content for as long as a Secret names it, and tells the feed of each change. The default polls it.
    async fn follow(&self, feed: Feed) {
        feed.poll(feed.poll_interval()).await;
    }

    /// Returns when the store last answered a question that was not a [`fetch`](Self::fetch).
    fn answered(&self) -> Option<Instant> {
        None
    }

    /// Returns the newest revision that any Secret has held.
    fn accepted(&self) -> Option<Revision> {
        None
    }

    /// Learns that a plan applies the snapshot.
    fn accept(&self, _snapshot: &Snapshot) {}

    /// Returns the record for a Secret that holds the snapshot, to be [recalled](Source::recall) after a restart.
    fn record(&self, _snapshot: &Snapshot) -> Option<String> {
        None
    }

    /// Returns the revision that the Secret with this record holds. Anybody may have written the record, so it counts for this Secret alone.
    fn recorded(&self, _record: &str) -> Option<Revision> {
        None
    }
}

/// A state of a content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision {
    /// The store's ID of the content. Another content of the same name has another ID, such as one that was deleted and created again.
    pub identity: String,
    /// The number of the version. It grows with each change of the same content.
    pub number: i64,
    /// A fingerprint of the content, comparable within this process only. `None` if the revision was only heard of. It tells a store that was
    /// restored from a backup and has reached the same number with other content.
    pub fingerprint: Option<u64>,
}

impl Revision {
    /// Returns whether both are one revision, as far as both know.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let has_other_content = self.fingerprint.zip(other.fingerprint).is_some_and(|(one, other)| one != other);
        self.identity == other.identity && self.number == other.number && !has_other_content
    }
}

/// The contents that may replace an applied one with another identity. Of one identity, only a larger number may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Succession {
    /// None, since nothing proves which of the two is newer.
    Unproven,
    /// An applied one with a smaller identity, which this serial number proves. Identities sort by time.
    Proven(u64),
    /// Any but an applied one with a larger identity and a larger number. Identities sort by time.
    NotEarlier,
}

/// A content at one revision.
pub struct Snapshot {
    /// The revision.
    pub revision: Revision,
    /// The contents that it may replace.
    pub succession: Succession,
    /// The tag of the revision for [`Upstream::is_current`], if the store has tags.
    pub tag: Option<String>,
    /// A remark for the owner of a Secret in sync with it.
    pub remark: Option<&'static str>,
    /// The values.
    pub values: BTreeMap<String, SecretValue>,
    /// The keys whose values could not be decrypted.
    pub failed: Vec<String>,
}

/// The reason why there is no snapshot.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The statement for the owners of the Secrets.
    pub statement: Statement,
    /// The kind of the failure. A failure of another kind is news.
    pub kind: &'static str,
    /// The condition that the failure shows.
    pub cause: Cause,
}

/// A condition of the store, as far as it decides when to ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Nothing answers, so it is asked again within seconds.
    Unreachable,
    /// It answers, but not as it should. It is asked again within seconds.
    Broken,
    /// It has decided, and decides the same until somebody changes something. It is asked again within two minutes.
    Refused,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.statement.text)
    }
}

/// The stores of this process: those of its settings, and those that custom resources connect.
#[derive(Clone, Default)]
pub struct Sources {
    of_settings: Vec<Arc<dyn Source>>,
    connections: Arc<Connections>,
}

impl Sources {
    /// Registers a store.
    #[must_use]
    pub fn with(mut self, source: impl Source + 'static) -> Self {
        self.of_settings.push(Arc::new(source));
        self
    }

    /// Returns the connections of custom resources.
    pub fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    /// Opens the content that the reference names.
    ///
    /// # Errors
    /// A statement for the owner, if this process has no connection to the store, or if the store refuses the reference.
    pub fn open(&self, reference: &Reference) -> Result<Box<dyn Upstream>, Statement> {
        if let Some(connection) = reference.connection() {
            return Ok(self.connections.open(reference, connection));
        }
        let source = self.of_settings.iter().find(|source| source.scheme() == reference.scheme());
        source.ok_or_else(|| messages::no_connection(reference))?.open(reference)
    }

    /// Passes the record of a Secret to all stores.
    pub fn recall(&self, record: &str) {
        self.of_settings.iter().for_each(|source| source.recall(record));
        self.connections.recall(record);
    }

    /// Closes the connections to all stores.
    pub async fn close(&self) {
        let all = [self.of_settings.clone(), self.connections.sources()].concat();
        join_all(all.iter().map(|source| source.close())).await;
    }

    /// Tells all stores that the records of all Secrets were recalled.
    pub fn records_are_complete(&self) {
        self.of_settings.iter().for_each(|source| source.records_are_complete());
        self.connections.records_are_complete();
    }
}

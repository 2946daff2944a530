//! The objects under a prefix, watched.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::StreamExt;
use jiff::Timestamp;
use object_store::{ObjectMeta, ObjectStore, path::Path};
use tokio::time::timeout;

use super::{
    Content, ObjectsError, OpenError,
    content::{Fetched, fetch},
    error::Kind,
    known::{Candidate, Known},
    open,
};
use crate::{Change, Entries, FingerprintKey, Next, Polled, Remembered, Source, SourceError};

/// Unless set, this many objects are remembered: some tens of megabytes.
const OBJECT_LIMIT: usize = 100_000;

/// Unless set, a store that sends nothing for this long has failed. Longer than a store's client takes for its own
/// repetitions.
const SILENCE: Duration = Duration::from_secs(60);

/// The greatest number of bytes of content that wait for the consumer, besides one object; the rest is fetched by the
/// next poll, at once.
const BATCH: usize = 64 * 1024 * 1024;

/// An object of a store. A test makes one with [`StoredObject::default`] and sets fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredObject {
    /// Its path from the root of the store. Of a removed object nothing else is known.
    pub path: String,
    /// Its entity tag, if the store has such.
    pub etag: Option<String>,
    /// Its version, if the store has such and shows it in listings.
    pub version: Option<String>,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// When it was written.
    pub last_modified: Option<Timestamp>,
    /// Its content, if it was requested.
    pub content: Content,
}

/// Watches the objects under a prefix by listing them.
///
/// An object is added when it is listed first. It is modified when its entity tag differs, or its version where there
/// is no tag, or its size or time where there is neither. It is removed when two complete listings in a row do not
/// show it.
///
/// Guarantees: a listing that fails half-way changes nothing. The source remembers no more objects than the limit, and reports an error if there are
/// more. An object that cannot be fetched does not hold up the others. Cannot distinguish a bucket that was emptied by mistake from one that was
/// emptied on purpose, so a program that acts on removals needs a budget for them. Does not: know a page of HTML that a proxy sends in place of a
/// listing, if the store has another HTTP client than [`Connector`](super::Connector).
pub struct ObjectSource {
    name: String,
    store: Arc<dyn ObjectStore>,
    prefix: Option<Path>,
    /// Must be there for an empty listing to count: a store of files lists nothing where there is nothing.
    folder: Option<PathBuf>,
    object_limit: usize,
    removed_after: u32,
    silence: Duration,
    fetch: Option<u64>,
    known: Known,
    key: Option<FingerprintKey>,
}

impl ObjectSource {
    /// Watches all objects. `name` labels metrics and logs.
    pub fn new(name: impl Into<String>, store: Arc<dyn ObjectStore>) -> Self {
        Self {
            name: name.into(),
            store,
            prefix: None,
            folder: None,
            object_limit: OBJECT_LIMIT,
            removed_after: 2,
            silence: SILENCE,
            fetch: None,
            known: Known::default(),
            key: None,
        }
    }

    /// Watches what is at an address, as [`open`](super::open()) takes it. A folder must be there: one that is not has
    /// not become empty.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use konverge_external::{Options, objects::ObjectSource, watch};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let source = ObjectSource::open("reports", "s3://reports/daily", [("region", "eu-central-1")])?.fetch(64 * 1024);
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let (changes, health) = watch(source, Options::every(Duration::from_secs(60)));
    /// # drop((changes, health));
    /// # });
    /// # Ok(())
    /// # }
    /// ```
    pub fn open<'a>(
        name: impl Into<String>,
        address: &str,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, OpenError> {
        let (store, prefix) = open::open(address, options)?;
        let folder = open::folder(address);
        Ok(Self { folder, ..Self::new(name, store).prefix(prefix) })
    }

    /// Watches what is under this path. Whole segments count: `a/b` has `a/b/c` under it, and not `a/bc`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Path>) -> Self {
        self.prefix = Some(prefix.into()).filter(|prefix| !prefix.as_ref().is_empty());
        self
    }

    /// How many objects are remembered; 100,000 unless set.
    #[must_use]
    pub fn object_limit(mut self, objects: usize) -> Self {
        self.object_limit = objects;
        self
    }

    /// How many complete listings in a row must lack an object until it is removed; 2 unless set.
    #[must_use]
    pub fn removed_after(mut self, listings: u32) -> Self {
        self.removed_after = listings;
        self
    }

    /// How long a listing may show nothing, and how long fetching one object may take; 60 s unless set.
    #[must_use]
    pub fn silence(mut self, limit: Duration) -> Self {
        self.silence = limit;
        self
    }

    /// Fetches the content of added and modified objects of up to this size in bytes.
    #[must_use]
    pub fn fetch(mut self, largest: u64) -> Self {
        self.fetch = Some(largest);
        self
    }

    fn place(&self) -> String {
        match &self.prefix {
            Some(prefix) => format!("{}/{prefix}", self.store),
            None => self.store.to_string(),
        }
    }

    async fn list(&mut self, key: &FingerprintKey) -> Result<Vec<Candidate>, ObjectsError> {
        self.known.begin();
        let store = Arc::clone(&self.store);
        let mut listing = store.list(self.prefix.as_ref());
        let (mut candidates, mut count) = (Vec::new(), 0);
        loop {
            let item = timeout(self.silence, listing.next()).await;
            let silent = |_| ObjectsError::Silent { act: "list", place: self.place(), limit: self.silence };
            let Some(item) = item.map_err(silent)? else { break };
            let meta = item.map_err(|error| ObjectsError::store("list", self.place(), &error))?;
            count += 1;
            if count > self.object_limit {
                return Err(ObjectsError::TooMany { place: self.place(), limit: self.object_limit });
            }
            candidates.extend(self.known.show(meta, key));
        }
        if let Some(folder) = self.folder.as_ref().filter(|_| count == 0) {
            let listed = tokio::fs::read_dir(folder).await;
            listed.map(drop).map_err(|error| ObjectsError::folder(folder, &error))?;
        }
        Ok(candidates)
    }

    async fn once(&mut self) -> Result<Polled<StoredObject>, ObjectsError> {
        let key = match &self.key {
            Some(key) => key.clone(),
            None => self.key.insert(FingerprintKey::random()?).clone(),
        };
        let candidates = self.list(&key).await?;
        let mut polled = Polled::from(Vec::new());
        let (mut learned, mut bytes) = (Vec::new(), 0);
        for candidate in candidates {
            if bytes >= BATCH {
                polled.next = Next::Now;
                break;
            }
            let Candidate { meta, kind, fingerprint } = candidate;
            let content = match self.fetch {
                None => Content::NotFetched,
                Some(largest) => match fetch(&*self.store, &meta, largest, self.silence).await {
                    Fetched::Content(content) => content,
                    Fetched::Outdated => continue,
                    Fetched::Failed(error) => {
                        // A refusal is about one object; anything else is about the store, and the next object fares no
                        // better.
                        let only_this = matches!(error, ObjectsError::Store { kind: Kind::Forbidden, .. });
                        polled.failure.get_or_insert(SourceError::new(error));
                        if only_this {
                            continue;
                        }
                        break;
                    }
                },
            };
            if let Content::Fetched(content) = &content {
                bytes += content.len();
            }
            learned.push((meta.location.to_string(), fingerprint));
            polled.changes.push(kind.of(item(meta, content)));
        }
        // From here on nothing waits and nothing fails: what is handed out and what is known change together.
        for path in self.known.end(self.removed_after) {
            polled.changes.push(Change::Removed(StoredObject {
                path,
                etag: None,
                version: None,
                size: None,
                last_modified: None,
                content: Content::NotFetched,
            }));
        }
        for (path, fingerprint) in learned {
            self.known.learn(path, fingerprint);
        }
        Ok(polled)
    }
}

fn item(meta: ObjectMeta, content: Content) -> StoredObject {
    let time = &meta.last_modified;
    // Below a thousand million; chrono counts a leap second as more.
    let nanoseconds = i32::try_from(time.timestamp_subsec_nanos().min(999_999_999)).unwrap_or_default();
    StoredObject {
        last_modified: Timestamp::new(time.timestamp(), nanoseconds).ok(),
        path: meta.location.into(),
        etag: meta.e_tag,
        version: meta.version,
        size: Some(meta.size),
        content,
    }
}

impl Source for ObjectSource {
    type Item = StoredObject;

    fn name(&self) -> &str {
        &self.name
    }

    async fn poll(&mut self) -> Result<Polled<StoredObject>, SourceError> {
        self.once().await.map_err(SourceError::new)
    }

    fn recall(&mut self, remembered: Remembered) {
        self.key = Some(remembered.key);
        self.known.recall(remembered.entries);
    }

    fn remembered(&self) -> Option<Entries> {
        Some(self.known.remembered())
    }
}

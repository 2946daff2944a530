//! The memory of a source across restarts.
//!
//! Entries tell which things were known and how they looked, as keyed fingerprints. They are written after the consumer
//! has taken the changes, so a change may come twice after a crash, and none is lost.

mod config_map;
mod file;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use konverge_core::error::{Classify, ErrorClass};

pub use config_map::ConfigMapMemory;
pub use file::FileMemory;

use crate::FingerprintKey;

/// One entry for each known thing: its name, and how it looked. Neither may be a secret.
pub type Entries = BTreeMap<String, String>;

/// The state that a source gets back after a restart. It gets no further field, so that a memory can return it as a literal.
#[derive(Clone)]
pub struct Remembered {
    /// The key that made the entries' fingerprints, and makes the next ones.
    pub key: FingerprintKey,
    /// The state that was saved last; empty at the first start.
    pub entries: Entries,
}

/// Where the entries of one source are kept. Two sources never share one.
pub trait Memory: Send + 'static {
    /// The state that was saved last. No poll takes place before this has succeeded: without it, removals would be forgotten.
    fn load(&mut self) -> BoxFuture<'_, Result<Remembered, MemoryError>>;

    /// Keeps the entries instead of those before. Fails with [`MemoryError::Changed`] if another process has written since this
    /// one read or wrote last; the watch then loads the memory again.
    fn save<'a>(&'a mut self, entries: &'a Entries) -> BoxFuture<'a, Result<(), MemoryError>>;
}

/// The memory could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system has no randomness for a key.
    #[error("cannot make a key for fingerprints: {0}")]
    Key(#[from] getrandom::Error),
    /// A file could not be read or written.
    #[error("cannot {act} {place}: {source}")]
    File {
        /// Read or write.
        act: &'static str,
        /// The file.
        place: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The API server refused.
    #[error("cannot {act} {place}: {source}")]
    Api {
        /// The request.
        act: &'static str,
        /// The object.
        place: String,
        /// The response.
        source: Box<kube::Error>,
    },
    /// The stored content is not in this memory's format.
    #[error(
        "{place} is not readable as remembered state: {why}; delete it to start over, then everything is reported as added \
         once and removals since then are not reported"
    )]
    Unreadable {
        /// The file or object.
        place: String,
        /// The reason.
        why: String,
    },
    /// Another process has written it.
    #[error(
        "{place} is not written: another process has changed it since this one read it; this process goes on from what it says \
         now, and if that repeats, two programs share it and one of them needs another name"
    )]
    Changed {
        /// The object.
        place: String,
    },
    /// There is too much to remember.
    #[error(
        "{entries} entries make {size} bytes, more than the {limit} that {place} may hold; watch less, for example by a \
         narrower prefix, or use a file"
    )]
    TooLarge {
        /// The object.
        place: String,
        /// How many there are.
        entries: usize,
        /// Bytes.
        size: usize,
        /// Bytes.
        limit: usize,
    },
}

impl Classify for MemoryError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Key(_) | Self::File { .. } | Self::Api { .. } | Self::Changed { .. } => ErrorClass::Transient,
            Self::Unreadable { .. } | Self::TooLarge { .. } => ErrorClass::Permanent,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Key(_) | Self::File { .. } | Self::Api { .. } => "MemoryUnavailable",
            Self::Changed { .. } => "MemoryChanged",
            Self::Unreadable { .. } => "MemoryUnreadable",
            Self::TooLarge { .. } => "MemoryTooLarge",
        }
    }
}

/// Remembers as long as the process lives. Clones are handles to the same memory, so a source that is watched anew in
/// the same process goes on where it was.
#[derive(Clone, Default)]
pub struct InProcess(Arc<Mutex<Option<Remembered>>>);

impl Memory for InProcess {
    fn load(&mut self) -> BoxFuture<'_, Result<Remembered, MemoryError>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = match &*state {
            Some(remembered) => Ok(remembered.clone()),
            None => FingerprintKey::random().map_err(MemoryError::Key).map(|key| {
                let remembered = Remembered { key, entries: Entries::new() };
                state.insert(remembered).clone()
            }),
        };
        Box::pin(std::future::ready(loaded))
    }

    fn save<'a>(&'a mut self, entries: &'a Entries) -> BoxFuture<'a, Result<(), MemoryError>> {
        if let Some(remembered) = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            remembered.entries.clone_from(entries);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

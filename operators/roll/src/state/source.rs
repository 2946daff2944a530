//! The state of one source.

use std::{collections::BTreeSet, sync::Arc};

use konverge_apply::Statement;

use crate::{
    breaker::{self, Breaker},
    declarations::{Invalid, SourceSpec},
    digest::KeyDigests,
    object::WorkloadRef,
    time::Time,
    vault::{SecretState, Version},
};

/// Everything that the index knows about one source. A snapshot shares it.
#[derive(Debug, Clone, Default)]
pub struct SourceState {
    /// Its uid, if it was seen.
    pub uid: String,
    /// The spec in its annotations.
    pub spec: SourceSpec,
    /// The annotation that cannot be followed.
    pub invalid: Option<Invalid>,
    /// The content that was read last.
    pub read: Option<Arc<Read>>,
    /// Whether that content may be older than what the pods of a user have read.
    pub doubt: Doubt,
    /// Its recent changes.
    pub breaker: Breaker,
    /// When its content was last seen to change.
    pub changed: Option<Time>,
    /// Since when it has had its content, or has been known to.
    pub since: Option<Time>,
    /// The state of the secret in Vault, if it is one.
    pub standing: SecretState,
    /// Why the last read was refused.
    pub refused: Option<Statement>,
}

/// Whether the content of a source may be older than what is known otherwise. A user that came after the read may run with newer content, and so may one
/// that another leader has rolled.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// It is current.
    #[default]
    None,
    /// It may be older, and so may the answer to a read that is under way.
    Open,
    /// It may be older, and the read that is under way will tell.
    Reading,
}

/// The content of a source, as it was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    /// Its resource version. `None` if it did not exist.
    pub version: Option<String>,
    /// The digests of its values. `None` if it did not exist.
    pub content: Option<KeyDigests>,
    /// Its version in Vault, if it is from there and has versions.
    pub in_vault: Option<Version>,
}

/// The result of reading a source.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SourceChange {
    /// The workloads that need a run.
    pub users: BTreeSet<WorkloadRef>,
    /// Whether its content has changed.
    pub changed: bool,
    /// The uid of the source, if this change is the one by which it has run away.
    pub ran_away: Option<String>,
}

impl SourceState {
    /// Returns the content, if nothing newer can be known.
    pub fn current(&self) -> Option<&Read> {
        self.read.as_deref().filter(|_| self.is_current())
    }

    /// Returns whether what is known of its content is not older than what a user runs with.
    pub fn is_current(&self) -> bool {
        self.doubt == Doubt::None
    }

    /// Returns whether it exists as far as is known: it has been read, or has a spec.
    pub(crate) fn exists(&self) -> bool {
        self.read.as_ref().is_some_and(|read| read.content.is_some()) || !self.spec.is_silent()
    }

    /// Notes what was read. Returns whether users need a run, and the change.
    pub(crate) fn learn(&mut self, read: Read, breaker: &breaker::Settings, now: Time) -> Option<SourceChange> {
        let was_awaited = self.doubt == Doubt::Reading;
        if was_awaited {
            self.doubt = Doubt::None;
        }
        let was_awaited = was_awaited | self.refused.take().is_some();
        let read = Arc::new(read);
        let before = self.read.replace(Arc::clone(&read));
        let is_new = before.is_none();
        let changed = before.as_ref().is_some_and(|before| read.content != before.content);
        let versions = before.as_ref().and_then(|before| before.in_vault.as_ref()).zip(read.in_vault.as_ref());
        let times = versions.map_or(1, |(before, now)| now.times_since(before, breaker.within));
        if is_new || changed {
            self.since = Some(now);
        }
        if !is_new && !changed && !was_awaited {
            return None;
        }
        let mut learned = SourceChange { changed, ..SourceChange::default() };
        if changed {
            self.changed = Some(now);
            learned.ran_away = self.breaker.changed(times, now, breaker).then(|| self.uid.clone());
        }
        Some(learned)
    }
}

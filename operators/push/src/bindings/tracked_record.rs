//! The record on an object as watches show it and as this process writes it. It tells which text is an echo of an own write, which version is
//! newest, and whether another actor works against the record.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::revert_guard::RevertGuard;

/// The number of own writes whose texts are remembered until a watch shows them. Older ones count as another actor's.
const UNSEEN_TEXTS: usize = 8;

/// The texts and versions of one record.
#[derive(Debug, Clone)]
pub(super) struct TrackedRecord {
    /// The resource version that was seen or written last.
    version: String,
    /// The resource version that was seen last.
    seen: String,
    /// The text that was seen last, then the texts that were written since. Any other text is another actor's.
    texts: VecDeque<Option<String>>,
    /// How often another actor changed the record.
    edits: u64,
    /// The contest with an actor that removed the record or set it back.
    undone: Option<RevertGuard>,
}

impl TrackedRecord {
    /// A record that a watch has shown with this version.
    pub(super) fn new(text: Option<String>, version: String) -> Self {
        Self { seen: version.clone(), version, texts: VecDeque::from([text]), edits: 0, undone: None }
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Whether the text is the one that was seen last or an own write. A watch may show a write after the next one was made.
    pub(super) fn knows(&self, text: Option<&String>) -> bool {
        self.texts.iter().any(|known| known.as_ref() == text)
    }

    /// A watch shows this text and version.
    pub(super) fn see(&mut self, text: Option<String>, version: String) {
        if let Some(position) = self.texts.iter().position(|known| *known == text) {
            self.texts.drain(..position);
        } else {
            self.texts = VecDeque::from([text]);
            self.edits += 1;
        }
        self.seen = version;
        self.settle_version();
    }

    /// This text is about to be written.
    pub(super) fn expect(&mut self, text: String) {
        let text = Some(text);
        if self.texts.back() != Some(&text) {
            self.texts.push_back(text);
        }
        if self.texts.len() > UNSEEN_TEXTS {
            self.texts.pop_front();
        }
    }

    /// This text was not written after all.
    pub(super) fn expect_no_more(&mut self, text: &str) {
        if self.texts.len() > 1 && self.bears(text) {
            self.texts.pop_back();
        }
        self.settle_version();
    }

    /// This text was written, and the response has this version. It counts unless a watch has shown the text meanwhile.
    pub(super) fn written(&mut self, text: &str, version: String) {
        if self.texts.len() > 1 && self.bears(text) {
            self.version = version;
        }
    }

    /// Whether the object bears this text, as far as that is known.
    pub(super) fn bears(&self, text: &str) -> bool {
        self.texts.back().and_then(Option::as_deref) == Some(text)
    }

    /// Whether no other actor changed the record between the two.
    pub(super) fn is_edited_like(&self, other: &Self) -> bool {
        self.edits == other.edits
    }

    /// Another actor removed the record or set it back, on an object with this interval.
    pub(super) fn undo(&mut self, interval: Option<Duration>) {
        self.undone = Some(RevertGuard::again(self.undone.take(), interval));
    }

    /// The object requests something else: what was undone before does not count.
    pub(super) fn forgive(&mut self) {
        self.undone = None;
    }

    /// Whether another actor keeps undoing the record.
    pub(super) fn is_fought(&self) -> bool {
        self.undone.as_ref().is_some_and(RevertGuard::is_fought)
    }

    /// Until when the operator leaves the object without its record.
    pub(super) fn left_until(&self) -> Option<Instant> {
        self.undone.as_ref().and_then(RevertGuard::until)
    }

    /// Whether the contest is to be reported now, which it is once.
    pub(super) fn tell_of_undoing(&mut self) -> bool {
        self.undone.as_mut().is_some_and(RevertGuard::tell)
    }

    /// An own write that no watch has shown yet has a newer version than the one that was seen. Its response tells that version.
    fn settle_version(&mut self) {
        if self.texts.len() == 1 {
            self.version.clone_from(&self.seen);
        }
    }
}

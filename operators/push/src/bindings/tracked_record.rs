//! The record on an object as watches show it and as this process writes it. It tells which text is an echo of an own write, which version is
//! newest, and whether another actor works against the record.

use std::{collections::VecDeque, mem, time::Duration};

use konverge_core::revert_backoff::RevertBackoff;
use tokio::time::Instant;

/// The longest pause before a record is written again that another actor keeps reverting. An object with a shorter interval has that interval
/// instead.
const LONGEST: Duration = Duration::from_mins(5);

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
    /// Whether admission changed something beside the text when it was written last, so that it has to be written again.
    is_altered: bool,
    /// How often another actor changed the record.
    edits: u64,
    /// The guard against an actor that removed the record or set it back.
    revert_guard: Option<RevertGuard>,
}

/// The guard against an actor that removes the record or sets it back, for example a tool that replaces whole objects. The operator restores the
/// record at once while that is rare, and with exponential backoff if the actor goes on. Meanwhile the record stays in force, so changes still reach
/// Vault.
#[derive(Debug, Clone)]
struct RevertGuard {
    backoff: RevertBackoff,
    /// When the actor last reverted the record.
    last: Instant,
    /// Whether the operator has reported that the actor goes on.
    is_reported: bool,
}

impl TrackedRecord {
    /// A record that a watch has shown with this version.
    pub(super) fn new(text: Option<String>, version: String) -> Self {
        let texts = VecDeque::from([text]);
        Self { seen: version.clone(), version, texts, is_altered: false, edits: 0, revert_guard: None }
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
            self.is_altered = false;
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
        if self.texts.len() > 1 && self.ends_with(text) {
            self.texts.pop_back();
        }
        self.settle_version();
    }

    /// This text was written, and the response has this version. It counts unless a watch has shown the text meanwhile.
    pub(super) fn written(&mut self, text: &str, version: String) {
        self.is_altered = false;
        if self.texts.len() > 1 && self.ends_with(text) {
            self.version = version;
        }
    }

    /// Admission changed what was written last. A watch may have shown the text meanwhile, or show it later, because the change may be beside it.
    pub(super) fn altered(&mut self) {
        self.is_altered = true;
    }

    /// Whether the object bears this text as it was written, as far as that is known.
    pub(super) fn bears(&self, text: &str) -> bool {
        !self.is_altered && self.ends_with(text)
    }

    /// Returns `true` if a watch has shown this text, and nothing was written since. Admission may have changed other fields than the text.
    pub(super) fn shows(&self, text: &str) -> bool {
        self.texts.len() == 1 && self.ends_with(text)
    }

    fn ends_with(&self, text: &str) -> bool {
        self.texts.back().and_then(Option::as_deref) == Some(text)
    }

    /// Whether no other actor changed the record between the two.
    pub(super) fn is_edited_like(&self, other: &Self) -> bool {
        self.edits == other.edits
    }

    /// Another actor removed the record or set it back, on an object that is compared with Vault in this interval.
    pub(super) fn reverted(&mut self, interval: Option<Duration>) {
        let longest = interval.map_or(LONGEST, |interval| interval.min(LONGEST));
        let before = self.revert_guard.take();
        let row = before.as_ref().map(|before| (before.backoff, before.last.elapsed()));
        let backoff = RevertBackoff::again(row, longest);
        let is_reported = backoff.is_contested() && before.is_some_and(|before| before.is_reported);
        self.revert_guard = Some(RevertGuard { backoff, last: Instant::now(), is_reported });
    }

    /// The object requests something else: earlier reverts do not count.
    pub(super) fn forgive(&mut self) {
        self.revert_guard = None;
    }

    /// Returns the guard if the actor keeps reverting the record, which is no accident.
    fn ongoing_revert(&self) -> Option<&RevertGuard> {
        let goes_on =
            |guard: &&RevertGuard| guard.backoff.is_contested() && guard.backoff.goes_on(guard.last.elapsed());
        self.revert_guard.as_ref().filter(goes_on)
    }

    /// Whether another actor keeps removing the record or setting it back.
    pub(super) fn is_contested(&self) -> bool {
        self.ongoing_revert().is_some()
    }

    /// Until when the operator leaves the object without its record.
    pub(super) fn left_until(&self) -> Option<Instant> {
        self.ongoing_revert().and_then(|guard| guard.last.checked_add(guard.backoff.pause()))
    }

    /// Whether the operator must report now that another actor keeps reverting the record. It does so once.
    pub(super) fn must_report_reverts(&mut self) -> bool {
        self.is_contested()
            && self.revert_guard.as_mut().is_some_and(|guard| !mem::replace(&mut guard.is_reported, true))
    }

    /// An own write that no watch has shown yet has a newer version than the one that was seen. Its response tells that version.
    fn settle_version(&mut self) {
        if self.texts.len() == 1 {
            self.version.clone_from(&self.seen);
        }
    }
}

//! One object that asks: what it asks for, how a watch shows it, and what is known of it beside.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use konverge_apply::conditions::whole_second;
use konverge_core::digest::ContentDigest;
use konverge_vault::{PathError, SecretPath};
use tokio::time::Instant;

use super::undone::Undone;
use crate::{
    asked::{Asked, DeletionPolicy, Invalid},
    desired::Wanted,
    messages::Message,
    object::ObjectRef,
    record::Record,
    vault_push::SECRET,
};

/// What an object asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asking {
    /// Nothing any more, but it has our finalizer: what was written for it is to be cleared, in this way if it says so.
    Nothing(Option<DeletionPolicy>),
    /// Something that cannot be understood, and what is to become of what was written for it, if it says that.
    Invalid(Arc<Invalid>, Option<DeletionPolicy>),
    /// A push.
    Push(Arc<Push>),
}

/// A push that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// What the annotations say.
    pub asked: Asked,
    /// Which Secrets it is made of.
    pub wanted: Wanted,
}

impl Push {
    /// Where one of the [targets](Wanted::targets) is to be, behind `prefix`.
    pub fn path(&self, prefix: &str, target: &str) -> Result<SecretPath, PathError> {
        let base = format!("{prefix}{}", self.asked.path);
        match &self.wanted {
            Wanted::Composed(_) => SecretPath::parse(&base.replace(SECRET, target)),
            _ if target.is_empty() => SecretPath::parse(&base),
            _ => SecretPath::parse(&base)?.join(target),
        }
    }
}

/// An object as a watch shows it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Which one.
    pub key: ObjectRef,
    /// Its uid; another one under the same name is another binding.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// What it asks for.
    pub asking: Asking,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// Whether it has our finalizer.
    pub finalizer: bool,
    /// Which generation of what it asks for this is, where that is to be told; see [`Record::generation`].
    pub generation: Option<i64>,
    /// The text of its record.
    pub record: Option<String>,
}

/// What is known of an object that asks. All of it can be lost at any time: the cluster and Vault have the truth.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The object's uid.
    pub uid: String,
    /// What it asks for.
    pub asking: Asking,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// Whether it has our finalizer.
    pub finalizer: bool,
    /// Which generation of what it asks for this is, where that is to be told.
    pub generation: Option<i64>,
    /// What is recorded on it.
    pub record: Option<Record>,
    /// The resource version that was seen or written last.
    pub version: String,
    /// When all of it was last found in step.
    pub verified: Option<Verified>,
    /// What each location held that was in step after the last run, also where others of the object's were not. What differs from that
    /// later though nothing else is wanted is somebody else's doing.
    pub held: BTreeMap<String, ContentDigest>,
    /// What was last said of it.
    pub said: Vec<Message>,
    /// Whether it asks for the same as when this process first saw it.
    pub asks_as_found: bool,
    /// What is to be said of it when its record is noted.
    pub unsaid: Vec<Message>,
    /// How often in a row it could not be brought in step because Vault or the API server did not do their part.
    pub failures: u32,
    /// How often in a row something was refused to it that nobody tells us of when it is allowed, since it or a Secret of its changed.
    pub refusals: u32,
    /// Since when fewer Secrets fit its selector than are recorded.
    pub fewer: Option<Instant>,
    /// When a Secret of its changed, if that is not in Vault yet.
    pub changed: Option<Instant>,
    /// That somebody took the record away or set it back, since it was last let be.
    undone: Option<Undone>,
    /// How often somebody else changed the record.
    edits: u64,
    /// The resource version that was seen last.
    shown: String,
    /// The text of the record that was seen last, then those that were written since; anything else is somebody else's.
    texts: VecDeque<Option<String>>,
}

/// So many texts are remembered that were written and have not been seen; the oldest ones go, and count as somebody else's then.
const UNSEEN_TEXTS: usize = 8;

/// A moment at which all was as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The versions of the Secrets that it was made of; nothing of one that is not there.
    pub sources: BTreeMap<String, Option<String>>,
    /// Whether the owner is noted in Vault wherever that can be. It is tried again where not.
    pub marked: bool,
    /// The request to look that was answered by this.
    pub sync_now: Option<String>,
    /// When Vault was looked at.
    pub looked: Instant,
    /// The locations that were looked at later, each with when, by whatever object has keys there.
    pub seen: BTreeMap<String, Instant>,
}

impl Binding {
    pub(super) fn new(shown: Shown) -> Self {
        let record = shown.record.as_deref().and_then(|text| Record::read(text, &shown.uid));
        Self {
            uid: shown.uid,
            asking: shown.asking,
            deleting: shown.deleting,
            finalizer: shown.finalizer,
            generation: shown.generation,
            record,
            version: shown.version.clone(),
            shown: shown.version,
            verified: None,
            held: BTreeMap::new(),
            said: Vec::new(),
            asks_as_found: true,
            unsaid: Vec::new(),
            failures: 0,
            refusals: 0,
            fewer: None,
            changed: None,
            undone: None,
            edits: 0,
            texts: VecDeque::from([shown.record]),
        }
    }

    /// A record of an object on which there is none.
    pub fn new_record(&self, now: Timestamp) -> Record {
        let record = Record::new(&self.uid, now);
        // That of a status.
        let since = if self.generation.is_some() { whole_second(now) } else { now };
        Record { since, generation: self.generation, ..record }
    }

    /// Takes over what is shown. Returns whether there is something to do.
    pub(super) fn take(&mut self, shown: Shown) -> bool {
        let asks_otherwise = self.asking != shown.asking;
        // A watch may show what was written some time after the next was.
        let seen = self.texts.iter().position(|text| *text == shown.record);
        let recorded_otherwise = seen.is_none();
        let changed = asks_otherwise
            || recorded_otherwise
            || self.generation != shown.generation
            || self.deleting.is_some() != shown.deleting.is_some()
            || self.finalizer && !shown.finalizer;
        if asks_otherwise {
            self.verified = None;
            self.said.clear();
            self.asks_as_found = false;
            self.refusals = 0;
            self.undone = None;
        }
        if recorded_otherwise {
            let found = shown.record.as_deref().and_then(|text| Record::read(text, &self.uid));
            let known = self.record.as_ref();
            if !asks_otherwise && known.is_some_and(|known| known.tells_more_than(found.as_ref())) {
                self.undone = Some(Undone::again(self.undone.take(), &self.asking));
            }
            let adds = found.as_ref().is_some_and(|found| known.is_none_or(|known| found.names_more_than(known)));
            if adds || self.undone.as_ref().is_none_or(|undone| !undone.is_fought()) {
                // What is known is not forgotten because somebody changed the annotation or took it away; it is written again.
                if let Some(found) = found {
                    self.record = Some(found.with_intended(self.record.take()));
                }
                self.verified = None;
                self.held.clear();
            }
            self.edits += 1;
        }
        match seen {
            Some(seen) => drop(self.texts.drain(..seen)),
            None => self.texts = VecDeque::from([shown.record]),
        }
        self.asking = shown.asking;
        self.deleting = shown.deleting;
        self.finalizer = shown.finalizer;
        self.generation = shown.generation;
        self.shown = shown.version;
        self.settle_version();
        changed
    }

    /// The record is about to be written: a watch may show it before the answer comes.
    pub fn expect(&mut self, record: &Record) {
        let text = Some(record.text());
        if self.texts.back() != Some(&text) {
            self.texts.push_back(text);
        }
        if self.texts.len() > UNSEEN_TEXTS {
            self.texts.pop_front();
        }
    }

    /// The record was not written after all.
    pub fn expect_no_more(&mut self, record: &Record) {
        if self.texts.len() > 1 && self.bears(record) {
            self.texts.pop_back();
        }
        self.settle_version();
    }

    /// What was written and not seen yet has a newer version than what is shown, which its answer tells.
    fn settle_version(&mut self) {
        if self.texts.len() == 1 {
            self.version.clone_from(&self.shown);
        }
    }

    /// The expected record was written. If it was seen meanwhile, what was seen after it is newer than this answer.
    pub fn recorded(&mut self, record: Record, version: String) {
        if self.texts.len() > 1 && self.bears(&record) {
            self.version = version;
        }
        self.record = Some(record);
    }

    /// Notes down what is in step, and whether all is, as a run found that began with this binding. Not if somebody else has changed the
    /// record since: that wants a run of its own.
    pub fn verify(&mut self, begun: &Self, held: BTreeMap<String, ContentDigest>, verified: Option<Verified>) {
        let is_same = self.edits == begun.edits;
        self.held = if is_same { held } else { BTreeMap::new() };
        self.verified = verified.filter(|_| is_same);
    }

    /// Notes down how a run ended that began with this binding. What changed since begins anew.
    pub fn refused(&mut self, begun: &Self, refusals: u32) {
        if self.refusals == begun.refusals {
            self.refusals = refusals;
        }
    }

    /// What is to be recorded on the object, as the same run made it, and said with it. The object bears it when it is
    /// [noted](Self::unrecorded).
    pub fn intend(&mut self, begun: &Self, record: Record, messages: Vec<Message>) {
        if self.edits == begun.edits {
            self.record = Some(record);
            let said_later = |message: &Message| !messages.contains(message);
            self.unsaid.retain(said_later);
            self.unsaid.extend(messages);
        }
    }

    /// What was begun for the object, or for one before it, though it bears no word of it.
    pub fn recall(&mut self, begun: &Record) {
        let record = self.record.take().unwrap_or_else(|| {
            let record = self.new_record(begun.since);
            Record { deletion: begun.deletion, ..record }
        });
        self.record = Some(record.with_intended(Some(begun.clone())));
    }

    /// The record as it is written now: with when all was last found in Vault, by what is known of that.
    #[must_use]
    pub fn dated(&self, record: &Record, now: Timestamp) -> Record {
        let ago = self.verified.as_ref().and_then(|verified| SignedDuration::try_from(verified.looked.elapsed()).ok());
        let looked = ago.and_then(|ago| now.checked_sub(ago).ok()).map(whole_second);
        Record { verified: looked.or(record.verified), ..record.clone() }
    }

    /// How long ago all that it asks for was last found in Vault, where that is to be looked at again from time to time.
    pub fn unseen(&self, now: Timestamp) -> Option<Duration> {
        let Asking::Push(push) = &self.asking else { return None };
        if push.asked.every.is_none() || push.asked.paused || self.deleting.is_some() {
            return None;
        }
        let recorded = || self.record.as_ref().and_then(|record| record.verified);
        match &self.verified {
            Some(verified) => Some(verified.looked.elapsed()),
            None => recorded().map(|then| Duration::try_from(now.duration_since(then)).unwrap_or_default()),
        }
    }

    /// Until when the object is left without its record, because somebody takes that away again and again.
    pub fn left_until(&self) -> Option<Instant> {
        let until = self.undone.as_ref()?.until().filter(|until| *until > Instant::now());
        until.filter(|_| self.unrecorded().is_some())
    }

    /// Whether it is to be told that somebody takes the record away again and again: once, until he has let it be.
    pub fn tell_of_undoing(&mut self) -> bool {
        self.undone.as_mut().is_some_and(Undone::tell)
    }

    /// Whether there is a record and the object bears it.
    pub fn bears_its_record(&self) -> bool {
        self.record.as_ref().is_some_and(|record| self.bears(record))
    }

    /// The record, if the object does not bear it.
    pub fn unrecorded(&self) -> Option<&Record> {
        self.record.as_ref().filter(|record| !self.bears(record))
    }

    /// Whether the object bears the record, as far as that is known.
    pub fn bears(&self, record: &Record) -> bool {
        self.texts.back().and_then(Option::as_deref).is_some_and(|text| text == record.text())
    }
}

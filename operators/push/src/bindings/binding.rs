//! The binding of one object: its request, its record, and the knowledge of this process about it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use konverge_apply::{Statement, conditions::whole_second};
use konverge_core::digest::ContentDigest;
use konverge_vault::{PathError, SecretPath};
use kube::core::ObjectMeta;
use tokio::time::Instant;

use super::{
    pace::{FailureCount, Verified},
    tracked_record::TrackedRecord,
};
use crate::{
    composition::SECRET,
    desired::Wanted,
    messages,
    object::{Kind, ObjectRef, has_finalizer},
    record::{Record, SYNCED},
    spec::{DeletionPolicy, Invalid, PushSpec},
};

/// The request of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedSpec {
    /// No request. The object still has our finalizer or content in Vault, so its paths are to be cleared.
    Nothing {
        /// The deletion policy of the object, if set.
        deletion: Option<DeletionPolicy>,
        /// The grace period of the object, if set.
        grace: Option<Duration>,
    },
    /// An invalid spec, and the deletion policy, if that is valid.
    Invalid(Arc<Invalid>, Option<DeletionPolicy>),
    /// A push.
    Push(Arc<Push>),
}

/// A requested push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The spec of the object.
    pub spec: PushSpec,
    /// The Secrets that it is made of.
    pub wanted: Wanted,
}

impl Push {
    /// Returns the path of one of the [targets](Wanted::targets), beneath `prefix`.
    pub fn path(&self, prefix: &str, target: &str) -> Result<SecretPath, PathError> {
        let base = format!("{prefix}{}", self.spec.path);
        match &self.wanted {
            Wanted::Composed(_) => SecretPath::parse(&base.replace(SECRET, target)),
            _ if target.is_empty() => SecretPath::parse(&base),
            _ => SecretPath::parse(&base)?.join(target),
        }
    }
}

/// An object as a watch shows it.
#[derive(Debug, Clone)]
pub struct WatchedObject {
    /// The object.
    pub key: ObjectRef,
    /// Its uid. Another uid under the same name is another binding.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// Its request.
    pub spec: ParsedSpec,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// Whether it has our finalizer.
    pub finalizer: bool,
    /// The generation of its spec, if the record names it; see [`Record::generation`].
    pub generation: Option<i64>,
    /// The text of its record.
    pub record: Option<String>,
}

impl WatchedObject {
    /// The object with this metadata, its request, and the text of its record. `None` if it has no uid yet.
    pub(crate) fn of(key: &ObjectRef, metadata: ObjectMeta, spec: ParsedSpec, record: Option<String>) -> Option<Self> {
        Some(Self {
            key: key.clone(),
            finalizer: has_finalizer(&metadata),
            uid: metadata.uid?,
            version: metadata.resource_version.unwrap_or_default(),
            spec,
            deleting: metadata.deletion_timestamp.map(|time| time.0),
            generation: metadata.generation.filter(|_| key.kind == Kind::VaultPush),
            record,
        })
    }
}

/// The knowledge about one object with a request. The process can lose all of it: the cluster and Vault have the truth.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The object's uid.
    pub uid: String,
    /// Its request.
    pub spec: ParsedSpec,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// Whether it has our finalizer.
    pub finalizer: bool,
    /// The generation of its spec, if the record names it.
    pub generation: Option<i64>,
    /// Its record.
    pub record: Option<Record>,
    /// Its last verification.
    pub verified: Option<Verified>,
    /// The content of each location in sync after the last run, even if other locations were not in sync. If the content differs later and the
    /// desired content does not, somebody else has changed it.
    pub held: BTreeMap<String, ContentDigest>,
    /// The statements about it.
    pub announced: Announced,
    /// Its failed runs.
    pub failures: FailureCount,
    /// Changes that are not in Vault yet.
    pub pending: Pending,
    /// The record and the version as watches and writes show them.
    tracked: TrackedRecord,
}

/// The statements about an object.
#[derive(Debug, Clone)]
pub struct Announced {
    /// The statements that were announced last.
    pub said: Vec<Statement>,
    /// The statements to announce when the record is written.
    pub unsaid: Vec<Statement>,
    /// The reason of the object's state, as it was stated last.
    pub reason: Option<&'static str>,
    /// Whether the object requests the same as when this process first saw it.
    pub has_first_spec: bool,
}

/// Changes that are not in Vault yet.
#[derive(Debug, Clone, Default)]
pub struct Pending {
    /// Since when fewer Secrets match the object's selector than are recorded.
    pub fewer: Option<Instant>,
    /// The first change of a Secret of the object.
    pub changed: Option<SecretChange>,
}

/// A change of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretChange {
    /// The time at which a watch showed the change.
    pub at: Instant,
    /// The Secret.
    pub secret: String,
    /// The version after the change.
    pub version: Option<String>,
}

impl Binding {
    pub(super) fn new(object: WatchedObject) -> Self {
        let record = object.record.as_deref().and_then(|text| Record::read(text, &object.uid));
        Self {
            uid: object.uid,
            spec: object.spec,
            deleting: object.deleting,
            finalizer: object.finalizer,
            generation: object.generation,
            record,
            verified: None,
            held: BTreeMap::new(),
            announced: Announced { said: Vec::new(), unsaid: Vec::new(), reason: None, has_first_spec: true },
            failures: FailureCount::default(),
            pending: Pending::default(),
            tracked: TrackedRecord::new(object.record, object.version),
        }
    }

    /// Returns a record for an object that bears none.
    pub fn new_record(&self, now: Timestamp) -> Record {
        let record = Record::new(&self.uid, now);
        // A status has whole seconds.
        let since = if self.generation.is_some() { whole_second(now) } else { now };
        Record { since, generation: self.generation, ..record }
    }

    /// Returns `true` if our finalizer holds the object and its deletion has not begun. An object that lost request, record and finalizer to another
    /// client counts, too: its content is in Vault, and the operator is about to restore the finalizer.
    pub fn is_held(&self) -> bool {
        let is_stripped = matches!(self.spec, ParsedSpec::Nothing { .. }) && self.has_content();
        (self.finalizer || is_stripped) && self.deleting.is_none()
    }

    /// Returns `true` if the record has paths.
    pub(super) fn has_content(&self) -> bool {
        self.record.as_ref().is_some_and(|record| !record.paths.is_empty())
    }

    /// Returns the record with the paths that the object no longer requests, and the policy of their deletion. `None` if it has none.
    pub(super) fn left(&self) -> Option<Record> {
        let mut record = self.record.clone()?;
        let (is_over, said) = match &self.spec {
            ParsedSpec::Nothing { deletion, .. } => (true, *deletion),
            ParsedSpec::Invalid(_, deletion) => (false, *deletion),
            ParsedSpec::Push(push) => (false, push.spec.deletion),
        };
        record.deletion = said.unwrap_or(record.deletion);
        if is_over || self.deleting.is_some() {
            record.leave(Timestamp::now());
        }
        record.paths.retain(|_, written| written.unwanted.is_some());
        (!record.paths.is_empty()).then_some(record)
    }

    /// Applies the state that a watch shows. Returns whether there is something to do.
    pub(super) fn apply(&mut self, object: WatchedObject) -> bool {
        let has_new_spec = self.spec != object.spec;
        let has_other_record = !self.tracked.knows(object.record.as_ref());
        let changed = has_new_spec
            || has_other_record
            || self.generation != object.generation
            || self.deleting.is_some() != object.deleting.is_some()
            || self.finalizer && !object.finalizer;
        if has_new_spec {
            self.verified = None;
            self.announced.said.clear();
            self.announced.has_first_spec = false;
            self.failures.refusals = 0;
            self.tracked.forgive();
        }
        if has_other_record {
            let found = object.record.as_deref().and_then(|text| Record::read(text, &self.uid));
            let known = self.record.as_ref();
            if !has_new_spec && known.is_some_and(|known| known.tells_more_than(found.as_ref())) {
                let interval = if let ParsedSpec::Push(push) = &self.spec { push.spec.every } else { None };
                self.tracked.reverted(interval);
            }
            let adds = found.as_ref().is_some_and(|found| known.is_none_or(|known| found.names_more_than(known)));
            if adds || !self.tracked.is_contested() {
                // The known paths stay known though somebody changed or removed the annotation. The operator writes them again.
                if let Some(found) = found {
                    self.record = Some(found.with_intended(self.record.take()));
                }
                self.verified = None;
                self.held.clear();
            }
        }
        self.spec = object.spec;
        self.deleting = object.deleting;
        self.finalizer = object.finalizer;
        self.generation = object.generation;
        self.tracked.see(object.record, object.version);
        changed
    }

    /// The resource version that was seen or written last.
    pub fn version(&self) -> &str {
        self.tracked.version()
    }

    /// The record is about to be written: a watch may show it before the response arrives.
    pub fn expect(&mut self, record: &Record) {
        self.tracked.expect(record.text());
    }

    /// The record was not written after all.
    pub fn expect_no_more(&mut self, record: &Record) {
        self.tracked.expect_no_more(&record.text());
    }

    /// The expected record was written. If a watch has shown it meanwhile, the versions after it are newer than this response.
    pub fn recorded(&mut self, record: Record, version: String) {
        self.tracked.written(&record.text(), version);
        self.record = Some(record);
    }

    /// The expected record was written, and admission changed it or something that was written with it, so it has to be written again.
    pub fn altered(&mut self, record: Record, version: String) {
        self.recorded(record, version);
        self.tracked.altered();
    }

    /// Returns `true` if a watch has shown the record on the object, although admission may have changed something beside it.
    pub(crate) fn shows_its_record(&self) -> bool {
        self.record.as_ref().is_some_and(|record| self.tracked.shows(&record.text()))
    }

    /// Notes the locations in sync, and the verification if all are, after a run that began with this binding. If another actor has changed
    /// the record since, another run must verify.
    pub fn verify(&mut self, begun: &Self, held: BTreeMap<String, ContentDigest>, verified: Option<Verified>) {
        let is_same = self.tracked.is_edited_like(&begun.tracked);
        self.held = if is_same { held } else { BTreeMap::new() };
        self.verified = verified.filter(|_| is_same);
    }

    /// Notes the failures after a run that began with this binding. After a change, the refusals are counted anew.
    pub fn failed(&mut self, begun: &Self, after: FailureCount) {
        self.failures.in_a_row = after.in_a_row;
        if self.failures.refusals == begun.failures.refusals {
            self.failures.refusals = after.refusals;
        }
    }

    /// Keeps the record of a run that began with this binding, and its statements, until they are [written](Self::unrecorded).
    pub fn intend(&mut self, begun: &Self, record: Record, statements: Vec<Statement>) {
        if self.tracked.is_edited_like(&begun.tracked) {
            self.record = Some(record);
            self.announced.unsaid.retain(|statement| !statements.contains(statement));
            self.announced.unsaid.extend(statements);
        }
    }

    /// Adds an intention of an earlier process for the object, or for an earlier object with its name.
    pub fn recall(&mut self, begun: &Record) {
        let record = self.record.take().unwrap_or_else(|| {
            let record = self.new_record(begun.since);
            Record { deletion: begun.deletion, ..record }
        });
        self.record = Some(record.with_intended(Some(begun.clone())));
    }

    /// Returns the record with the state of the object, and all statements.
    pub(crate) fn with_state(&self, mut record: Record, mut statements: Vec<Statement>) -> (Record, Vec<Statement>) {
        record.generation = self.generation;
        let (state, text) = messages::summary(&statements);
        if state == SYNCED {
            statements.push(messages::synced(&record.paths.keys().cloned().collect::<Vec<_>>()));
        }
        record.say(state, text, Timestamp::now());
        if let ParsedSpec::Push(push) = &self.spec {
            record.answered.clone_from(&push.spec.sync_now);
        }
        (record, statements)
    }

    /// The record as it is written now: with when all was last found in Vault, by what is known of that.
    #[must_use]
    pub fn dated(&self, record: &Record, now: Timestamp) -> Record {
        let ago = self.verified.as_ref().and_then(|verified| SignedDuration::try_from(verified.looked.elapsed()).ok());
        let looked = ago.and_then(|ago| now.checked_sub(ago).ok()).map(whole_second);
        Record { verified: looked.or(record.verified), ..record.clone() }
    }

    /// Returns how long ago all paths were last found in sync. `None` if the object has no interval.
    pub fn unseen(&self, now: Timestamp) -> Option<Duration> {
        let ParsedSpec::Push(push) = &self.spec else { return None };
        if push.spec.every.is_none() || push.spec.paused || self.deleting.is_some() {
            return None;
        }
        let recorded = || self.record.as_ref().and_then(|record| record.verified);
        match &self.verified {
            Some(verified) => Some(verified.looked.elapsed()),
            None => recorded().map(|then| Duration::try_from(now.duration_since(then)).unwrap_or_default()),
        }
    }

    /// Until when the operator leaves the object without its record, because another actor keeps removing it.
    pub fn left_until(&self) -> Option<Instant> {
        let until = self.tracked.left_until().filter(|until| *until > Instant::now());
        until.filter(|_| self.unrecorded().is_some())
    }

    /// Whether the operator must report now that another actor keeps removing the record. It does so once, until the actor has stopped and begins again.
    pub fn must_report_reverts(&mut self) -> bool {
        self.tracked.must_report_reverts()
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
        self.tracked.bears(&record.text())
    }
}

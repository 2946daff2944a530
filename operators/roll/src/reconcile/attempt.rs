//! One attempt to bring a workload in step with what was decided upon: whether it may be now, then the write, then the words.

use std::{collections::BTreeMap, mem::discriminant, time::Duration};

use jiff::Timestamp;
use konverge_apply::{conditions::whole_second, events::Notice};
use konverge_runtime::{Action, Priority};
use kube::runtime::events::EventType;

use super::{ACTION, CONTENDED, RollError, Roller};
use crate::{
    budget::Spent,
    decision::Verdict,
    declarations::{RESTARTED_AT, WorkloadAsks, ZOPP_RESTARTED_AT},
    digest::Digester,
    hold::Candidate,
    index::View,
    messages::{Message, because, without},
    object::{SourceName, WorkloadRef},
    record::{Entry, Record},
    unheard::Unheard,
    wait::{Back, late_secret_of},
    writer::{Decided, WriteError, Written},
};

/// Who waits for others is woken by them; this is for what nobody tells, such as that one has had its time.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What became of an attempt.
pub(super) enum Attempt {
    Ended(Action),
    /// What was decided upon is not what is there any more.
    Outdated,
}

const DONE: Attempt = Attempt::Ended(Action::Done);

/// One attempt.
pub(super) struct Run<'a> {
    pub(super) roller: &'a Roller,
    pub(super) key: &'a WorkloadRef,
    pub(super) digester: &'a Digester,
    pub(super) view: &'a View,
    pub(super) now: Timestamp,
}

impl Run<'_> {
    /// Does what is decided, as far as it may now.
    pub(super) async fn attempt(&self) -> Result<Attempt, RollError> {
        let Self { roller, key, view, now, .. } = self;
        if view.is_decided_now {
            roller.tell(key);
        }
        if let Some(Unheard { why, changed, seen, .. }) = roller.index.heard(key, &view.uid) {
            self.tell(&changed, &why, seen);
        }
        if view.deleting {
            roller.leave(key);
            return Ok(DONE);
        }
        let asks = match &view.asks {
            Ok(asks) => asks,
            Err(invalid) => {
                self.not_now();
                self.settled(vec![Message::invalid(invalid)]);
                return Ok(DONE);
            }
        };
        if let Some(other) = &view.template_of {
            self.not_now();
            self.settled(vec![Message::elsewhere(other)]);
            return Ok(DONE);
        }
        match &view.verdict {
            // It is woken when what it uses was read, or when that is refused.
            None => {
                for source in &view.doubted {
                    roller.sources.add(source.clone(), Priority::High, CONTENDED);
                }
                self.say(Vec::new());
                Ok(DONE)
            }
            Some(Verdict::Nothing) => {
                self.not_now();
                if view.back.values().any(|back| matches!(back, Back::Awaited(_, None))) {
                    // It is woken when that was read.
                    return Ok(DONE);
                }
                if let Some((message, until)) = self.held_back() {
                    self.hold(message, until);
                    return Ok(Attempt::Ended(until.map_or(Action::Done, |until| self.at(until))));
                }
                self.settled(Vec::new());
                Ok(Attempt::Ended(view.again.map_or(Action::Done, |again| self.at(again))))
            }
            Some(Verdict::Note(content)) => match view.fought.filter(|until| until > now && !view.is_noted) {
                Some(until) => {
                    self.not_now();
                    self.settled(Vec::new());
                    Ok(Attempt::Ended(self.at(until)))
                }
                None => self.note(content).await,
            },
            // Pods that are started later read what there is then.
            Some(Verdict::Roll { content, .. }) if view.rollout.empty => self.note(content).await,
            Some(Verdict::Roll { changed, content }) => {
                let is_changed = |(name, _): &(&SourceName, _)| changed.contains(&name.to_string());
                let changed: BTreeMap<_, _> = view.uses.iter().filter(is_changed).collect();
                let why = because(changed.iter().map(|(name, used)| (*name, *used)));
                let why = without(why, &self.late(content));
                let changed: Vec<_> = changed.into_keys().cloned().collect();
                match self.may_it(asks, &changed, &why) {
                    Some((message, until, action)) => {
                        self.not_now();
                        self.hold(message, until);
                        Ok(Attempt::Ended(action))
                    }
                    None => self.roll(asks, &changed, content, &why).await,
                }
            }
        }
    }

    /// What keeps all that has changed from rolling it, and until when at the least.
    fn held_back(&self) -> Option<(Message, Option<Timestamp>)> {
        let back = || self.view.back.iter().filter(|(_, back)| back.is_told());
        let until = back().filter_map(|(_, back)| back.until()).min();
        let (_, first) = back().min_by_key(|(_, back)| back.until())?;
        // What is held back for another reason is told when its time comes.
        let alike = back().filter(|(_, back)| discriminant(*back) == discriminant(first));
        let changed = because(alike.filter_map(|(name, _)| Some((name, self.view.uses.get(name)?))));
        Some((Message::back(first, &changed)?, until))
    }

    /// What keeps it from being rolled now, until when if that is known, and when to look again; nothing if it may be.
    fn may_it(
        &self,
        asks: &WorkloadAsks,
        changed: &[SourceName],
        why: &str,
    ) -> Option<(Message, Option<Timestamp>, Action)> {
        let Self { roller, key, view, now, digester } = self;
        let policy = &roller.policy;
        let candidate = Candidate {
            rollout: view.rollout,
            paused: asks.paused,
            rolled: view.record.as_ref().and_then(|record| record.rolled),
            min_interval: asks.min_interval.unwrap_or(policy.min_interval),
            changed: view.changed,
            debounce: policy.debounce,
            pending: view.pending,
        };
        if let Some(hold) = candidate.hold(*now) {
            let message = Message::held(hold, why);
            let until = hold.until();
            return Some((message, until, until.map_or(Action::Done, |until| self.at(until))));
        }
        let turn = roller.index.turn(key, asks.wave, changed, digester, (*now, policy.longest));
        Message::not_its_turn(&turn, why).map(|message| (message, None, Action::After(LOOK_AGAIN)))
    }

    async fn roll(
        &self,
        asks: &WorkloadAsks,
        changed: &[SourceName],
        content: &BTreeMap<String, Entry>,
        why: &str,
    ) -> Result<Attempt, RollError> {
        let Self { roller, key, view, now, digester } = self;
        let stamp = digester.next_stamp(&view.uid, content, view.stamp.as_deref());
        if let Err(spent) = roller.budget().take(key, &stamp, *now) {
            let Spent { until, .. } = spent;
            self.hold(Message::spent(&spent, why), Some(until));
            return Ok(Attempt::Ended(self.at(until)));
        }
        let mut record = Record {
            tag: digester.tag(&view.uid),
            content: content.clone(),
            rolled: Some(*now),
            because: Some(why.to_owned()),
            also: Vec::new(),
        };
        record.also = changed.iter().map(ToString::to_string).filter(|source| !record.is_for(source)).collect();
        let record = record.text();
        roller.index.writing(key, &view.uid, &record);
        // To the second, as those write it whose annotations these are.
        let time = whole_second(*now).to_string();
        let written = roller.writer.roll(self.decided(&record), &stamp, (&self.marks(asks), &time)).await;
        let version = match written {
            Ok(Written::Done(version)) => version,
            other => {
                // Whether it was done after all is not known if the answer is not; then its place is kept until the watch tells.
                if other.as_ref().err().is_none_or(WriteError::is_refused) {
                    let next = roller.budget().give_back(key);
                    roller.wake(next);
                } else {
                    let (version, why, changed) = (view.version.clone(), why.to_owned(), changed.to_vec());
                    let unheard = Unheard { version, stamp, why, changed, seen: view.changed };
                    roller.index.unheard(key, &view.uid, unheard);
                }
                roller.metrics.rolled(key.kind, if other.is_ok() { "outdated" } else { "failed" });
                return Ok(if other? == Written::Outdated { Attempt::Outdated } else { DONE });
            }
        };
        roller.index.wrote(key, &view.uid, &version, record, Some((stamp, *now)));
        self.settled(Vec::new());
        self.tell(changed, why, view.changed);
        Ok(DONE)
    }

    /// Tells that it was rolled, why, and for which sources, of which the last changed when it was `seen` to.
    fn tell(&self, changed: &[SourceName], why: &str, seen: Option<Timestamp>) {
        let Self { roller, key, .. } = self;
        roller.metrics.rolled(key.kind, "rolled");
        if let Some(seen) = seen {
            roller.metrics.delayed(Timestamp::now().duration_since(seen).as_secs_f64());
        }
        // Each is news, also if the one before was for the same.
        self.say(Vec::new());
        self.say(vec![Message::rolled(why)]);
        for name in changed {
            let source = name.of(&key.namespace);
            let Some(uid) = roller.index.source_uid(&source) else { continue };
            let Message { reason, text, .. } = Message::rolled_user(key);
            let regarding = source.reference(&uid);
            roller.events.send(Notice { regarding, kind: EventType::Normal, reason, action: ACTION, note: text });
        }
    }

    /// The Secrets that have not followed and are not waited for any longer.
    fn late(&self, content: &BTreeMap<String, Entry>) -> Vec<String> {
        let known = self.view.record.as_ref().map(|record| &record.content);
        let late = content.keys().filter(|text| !known.is_some_and(|known| known.contains_key(*text)));
        late.filter_map(|text| Some(late_secret_of(text)?.to_string())).collect()
    }

    /// Writes down with what its pods run.
    async fn note(&self, content: &BTreeMap<String, Entry>) -> Result<Attempt, RollError> {
        let Self { roller, key, view, digester, .. } = self;
        let before = view.record.as_ref();
        let record = Record {
            tag: digester.tag(&view.uid),
            content: content.clone(),
            rolled: before.and_then(|record| record.rolled),
            because: before.and_then(|record| record.because.clone()),
            also: before.map(|record| record.also.clone()).unwrap_or_default(),
        };
        let record = record.text();
        roller.index.writing(key, &view.uid, &record);
        match roller.writer.note(self.decided(&record)).await? {
            Written::Done(version) => {
                self.not_now();
                roller.index.wrote(key, &view.uid, &version, record, None);
                self.settled(Vec::new());
                Ok(DONE)
            }
            Written::Outdated => Ok(Attempt::Outdated),
            Written::Gone => Ok(DONE),
        }
    }

    /// Annotations of others that tell when pods were restarted.
    fn marks(&self, asks: &WorkloadAsks) -> Vec<&'static str> {
        let in_vault = self.view.uses.keys().any(|source| source.kind.is_in_vault());
        let marks = [(ZOPP_RESTARTED_AT, asks.zopp), (RESTARTED_AT, in_vault)];
        marks.into_iter().filter(|(_, wanted)| *wanted).map(|(mark, _)| mark).collect()
    }

    fn decided<'a>(&'a self, record: &'a str) -> Decided<'a> {
        Decided { key: self.key, uid: &self.view.uid, version: &self.view.version, record }
    }

    /// It waits, and says why.
    fn hold(&self, message: Message, until: Option<Timestamp>) {
        self.roller.index.pending(self.key, &self.view.uid, Some((self.now, until)));
        self.roller.metrics.held(message.reason);
        self.say(vec![message]);
    }

    /// It waits for nothing any more.
    fn settled(&self, messages: Vec<Message>) {
        self.roller.index.pending(self.key, &self.view.uid, None);
        self.roller.index.needs_no_turn(self.key);
        self.say(messages);
    }

    /// And what may not be read, and that somebody fights.
    fn say(&self, mut messages: Vec<Message>) {
        messages.extend(self.view.refused.iter().cloned());
        messages.extend(self.view.fought.map(|_| Message::taken()));
        self.roller.say(self.key, &self.view.uid, messages);
    }

    /// It leaves its place to the next one.
    fn not_now(&self) {
        let next = self.roller.budget().not_now(self.key, self.view.stamp.as_deref());
        self.roller.wake(next);
    }

    /// A little late, so that it is time when it comes.
    fn at(&self, until: Timestamp) -> Action {
        let rest = Duration::try_from(until.duration_since(self.now)).unwrap_or_default();
        Action::After(rest + Duration::from_millis(10))
    }
}

//! One attempt to carry out a decision about a workload: the gates, then the write, then the report.

use std::{collections::BTreeMap, mem::discriminant, time::Duration};

use konverge_apply::{Statement, conditions::whole_second};
use konverge_runtime::{Action, Priority};

use super::{RollError, Roller};
use crate::{
    budget::Spent,
    decision::Verdict,
    declarations::{RESTARTED_AT, WorkloadSpec, ZOPP_RESTARTED_AT},
    digest::Digester,
    hold::Candidate,
    messages::{self, because, without},
    object::{SourceName, WorkloadRef},
    plan::View,
    record::{Entry, Record},
    time::Time,
    unacknowledged::UnacknowledgedRollout,
    wait::{Deferral, late_secret_of},
    wakeups::CONTENDED,
    writer::{Decided, WriteError, Written},
};

/// A workload that waits for others is woken by them. This is for changes without an event, such as the end of a time limit.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The result of an attempt.
pub(super) enum Attempt {
    Ended(Action),
    /// The workload has changed since the decision.
    Outdated,
}

const DONE: Attempt = Attempt::Ended(Action::Done);

/// One attempt.
pub(super) struct Run<'a> {
    pub(super) roller: &'a Roller,
    pub(super) key: &'a WorkloadRef,
    pub(super) digester: &'a Digester,
    pub(super) view: &'a View,
    pub(super) now: Time,
}

impl Run<'_> {
    /// Does what is decided, as far as it may now.
    pub(super) async fn attempt(&self) -> Result<Attempt, RollError> {
        let Self { roller, key, view, now, .. } = self;
        if view.is_decided_now {
            roller.tell(key);
        }
        if let Some(UnacknowledgedRollout { why, changed, seen, .. }) =
            roller.parts.index.take_acknowledged(key, view.uid())
        {
            self.tell(&changed, &why, seen);
        }
        if view.observed().deleting {
            roller.opt_out(key);
            return Ok(DONE);
        }
        let spec = match view.spec() {
            Ok(spec) => spec,
            Err(invalid) => {
                self.release_slot();
                self.settled(vec![messages::invalid(invalid)]);
                return Ok(DONE);
            }
        };
        if let Some(other) = &view.observed().template_of {
            self.release_slot();
            self.settled(vec![messages::elsewhere(other)]);
            return Ok(DONE);
        }
        match &view.plan.verdict {
            // It is woken when what it uses was read, or when that is refused.
            None => {
                roller.parts.queues.sources.add_all(view.plan.doubted.iter().cloned(), Priority::High, CONTENDED);
                self.say(Vec::new());
                Ok(DONE)
            }
            Some(Verdict::Nothing) => Ok(Attempt::Ended(self.nothing_to_do())),
            Some(Verdict::Note(content)) => {
                match view.plan.contested_until.filter(|until| until > now && !view.plan.is_noted) {
                    Some(until) => {
                        self.release_slot();
                        self.settled(Vec::new());
                        Ok(Attempt::Ended(self.at(until)))
                    }
                    None => self.note(content).await,
                }
            }
            // Pods that are started later read what there is then.
            Some(Verdict::Roll { content, .. }) if view.snapshot.pods.rollout.empty => self.note(content).await,
            Some(Verdict::Roll { changed, content }) => self.roll_unless_blocked(spec, changed, content).await,
        }
    }

    /// Reports that the pods run with the current content, or why a change is held back.
    fn nothing_to_do(&self) -> Action {
        self.release_slot();
        let deferrals = &self.view.plan.deferral;
        if deferrals.values().any(|deferral| matches!(deferral, Deferral::Awaited(_, None))) {
            // It is woken when that was read.
            return Action::Done;
        }
        if let Some((message, until)) = self.deferral_of_all() {
            self.block(message, until);
            return until.map_or(Action::Done, |until| self.at(until));
        }
        self.settled(Vec::new());
        self.view.plan.again.map_or(Action::Done, |again| self.at(again))
    }

    async fn roll_unless_blocked(
        &self,
        spec: &WorkloadSpec,
        changed: &[String],
        content: &BTreeMap<String, Entry>,
    ) -> Result<Attempt, RollError> {
        let is_changed = |(name, _): &(&SourceName, _)| changed.contains(&name.to_string());
        let changed: BTreeMap<_, _> = self.view.uses().iter().filter(is_changed).collect();
        let why = because(changed.iter().map(|(name, used)| (*name, *used)));
        let why = without(why, &self.late(content));
        let changed: Vec<_> = changed.into_keys().cloned().collect();
        match self.blocked(spec, &changed, &why) {
            Some((message, until, action)) => {
                self.release_slot();
                self.block(message, until);
                Ok(Attempt::Ended(action))
            }
            None => self.roll(spec, &changed, content, &why).await,
        }
    }

    /// Returns why none of the changed sources rolls it, and until when at least.
    fn deferral_of_all(&self) -> Option<(Statement, Option<Time>)> {
        let deferral = || self.view.plan.deferral.iter().filter(|(_, deferral)| deferral.is_told());
        let until = deferral().filter_map(|(_, deferral)| deferral.until()).min();
        let (_, first) = deferral().min_by_key(|(_, deferral)| deferral.until())?;
        // A source that is held back for another reason is reported later.
        let alike = deferral().filter(|(_, deferral)| discriminant(*deferral) == discriminant(first));
        let changed = because(alike.filter_map(|(name, _)| Some((name, self.view.uses().get(name)?))));
        Some((messages::deferral(first, &changed)?, until))
    }

    /// Returns why it may not be rolled now, until when, and when to look again. Returns `None` if it may be.
    fn blocked(
        &self,
        spec: &WorkloadSpec,
        changed: &[SourceName],
        why: &str,
    ) -> Option<(Statement, Option<Time>, Action)> {
        let Self { roller, key, view, now, digester } = self;
        if let Some(hold) = Candidate::of(view, spec, &roller.pace, *now).blocked_by(*now) {
            let message = messages::held(hold, why);
            let until = hold.until();
            return Some((message, until, until.map_or(Action::Done, |until| self.at(until))));
        }
        let turn = roller.parts.index.wave_gate(key, spec.wave, changed, digester, (*now, roller.pace.rollout_timeout));
        messages::not_its_wave(&turn, why).map(|message| (message, None, Action::After(LOOK_AGAIN)))
    }

    async fn roll(
        &self,
        spec: &WorkloadSpec,
        changed: &[SourceName],
        content: &BTreeMap<String, Entry>,
        why: &str,
    ) -> Result<Attempt, RollError> {
        let Self { roller, key, view, now, digester } = self;
        let stamp = digester.next_stamp(view.uid(), content, view.observed().stamp.as_deref());
        if let Err(spent) = roller.parts.budget().take(key, &stamp, *now) {
            let Spent { until, .. } = spent;
            self.block(messages::spent(&spent, why), Some(until));
            return Ok(Attempt::Ended(self.at(until)));
        }
        let mut record = Record {
            tag: digester.tag(view.uid()),
            content: content.clone(),
            rolled: Some(now.wall()),
            because: Some(why.to_owned()),
            also: Vec::new(),
        };
        record.also = changed.iter().map(ToString::to_string).filter(|source| !record.is_for(source)).collect();
        let record = record.text();
        roller.parts.index.writing(key, view.uid(), &record);
        // To the second, as those write it whose annotations these are.
        let time = whole_second(now.wall()).to_string();
        let written = roller.writer.roll(self.decided(&record), &stamp, (&self.marks(spec), &time)).await;
        let version = match written {
            Ok(Written::Done(version)) => version,
            other => {
                // Whether it was done after all is not known if the answer is not; then its place is kept until the watch tells.
                if other.as_ref().err().is_none_or(WriteError::is_refused) {
                    let next = roller.parts.budget().give_back(key);
                    roller.parts.queues.wake_next(next);
                } else {
                    let (version, why, changed) = (view.observed().version.clone(), why.to_owned(), changed.to_vec());
                    let unacknowledged =
                        UnacknowledgedRollout { version, stamp, why, changed, seen: view.plan.changed };
                    roller.parts.index.set_unacknowledged(key, view.uid(), unacknowledged);
                }
                roller.parts.metrics.rolled(key.kind, if other.is_ok() { "outdated" } else { "failed" });
                return Ok(if other? == Written::Outdated { Attempt::Outdated } else { DONE });
            }
        };
        roller.parts.index.wrote(key, view.uid(), &version, record, Some((stamp, *now)));
        self.settled(Vec::new());
        self.tell(changed, why, view.plan.changed);
        Ok(DONE)
    }

    /// Tells that it was rolled, why, and for which sources, of which the last changed when it was `seen` to.
    fn tell(&self, changed: &[SourceName], why: &str, seen: Option<Time>) {
        let Self { roller, key, .. } = self;
        roller.parts.metrics.rolled(key.kind, "rolled");
        if let Some(seen) = seen {
            roller.parts.metrics.delayed(Time::now().since(seen).as_secs_f64());
        }
        // Each is news, also if the one before was for the same.
        self.say(Vec::new());
        self.say(vec![messages::rolled(why)]);
        for name in changed {
            let source = name.of(&key.namespace);
            let Some(uid) = roller.parts.index.source_uid(&source) else { continue };
            roller.parts.announcer.publish(source.reference(&uid), &messages::rolled_user(key));
        }
    }

    /// The Secrets that have not followed and are not waited for any longer.
    fn late(&self, content: &BTreeMap<String, Entry>) -> Vec<String> {
        let known = self.view.plan.record.as_ref().map(|record| &record.content);
        let late = content.keys().filter(|text| !known.is_some_and(|known| known.contains_key(*text)));
        late.filter_map(|text| Some(late_secret_of(text)?.to_string())).collect()
    }

    /// Writes down with what its pods run.
    async fn note(&self, content: &BTreeMap<String, Entry>) -> Result<Attempt, RollError> {
        let Self { roller, key, view, digester, .. } = self;
        let before = view.plan.record.as_ref();
        let record = Record {
            tag: digester.tag(view.uid()),
            content: content.clone(),
            rolled: before.and_then(|record| record.rolled),
            because: before.and_then(|record| record.because.clone()),
            also: before.map(|record| record.also.clone()).unwrap_or_default(),
        };
        let record = record.text();
        roller.parts.index.writing(key, view.uid(), &record);
        match roller.writer.note(self.decided(&record)).await? {
            Written::Done(version) => {
                self.release_slot();
                roller.parts.index.wrote(key, view.uid(), &version, record, None);
                self.settled(Vec::new());
                Ok(DONE)
            }
            Written::Outdated => Ok(Attempt::Outdated),
            Written::Gone => Ok(DONE),
        }
    }

    /// Annotations of others that tell when pods were restarted.
    fn marks(&self, spec: &WorkloadSpec) -> Vec<&'static str> {
        let in_vault = self.view.uses().keys().any(|source| source.kind.is_in_vault());
        let marks = [(ZOPP_RESTARTED_AT, spec.zopp), (RESTARTED_AT, in_vault)];
        marks.into_iter().filter(|(_, wanted)| *wanted).map(|(mark, _)| mark).collect()
    }

    fn decided<'a>(&'a self, record: &'a str) -> Decided<'a> {
        Decided { key: self.key, uid: self.view.uid(), version: &self.view.observed().version, record }
    }

    /// It waits, and says why.
    fn block(&self, message: Statement, until: Option<Time>) {
        self.roller.parts.index.pending(self.key, self.view.uid(), Some((self.now, until)));
        self.roller.parts.metrics.held(message.reason);
        self.say(vec![message]);
    }

    /// It waits for nothing any more.
    fn settled(&self, messages: Vec<Statement>) {
        self.roller.parts.index.pending(self.key, self.view.uid(), None);
        self.roller.parts.index.needs_no_turn(self.key);
        self.say(messages);
    }

    /// And what may not be read, and that somebody fights.
    fn say(&self, mut messages: Vec<Statement>) {
        messages.extend(self.view.plan.refused.iter().cloned());
        messages.extend(self.view.plan.contested_until.map(|_| messages::taken()));
        self.roller.say(self.key, self.view.uid(), messages);
    }

    /// It leaves its place to the next one.
    fn release_slot(&self) {
        let next = self.roller.parts.budget().release_slot(self.key, self.view.observed().stamp.as_deref());
        self.roller.parts.queues.wake_next(next);
    }

    /// A little late, so that it is time when it comes.
    fn at(&self, until: Time) -> Action {
        let rest = Duration::try_from(until.since(self.now)).unwrap_or_default();
        Action::After(rest + Duration::from_millis(10))
    }
}

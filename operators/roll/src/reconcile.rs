//! A workload from the content that it uses to the content that its pods run with: observe, plan, apply, report.
//!
//! A run takes a [`View`], which is a snapshot and its plan, passes the gates, writes, and reports. If the workload has changed since the snapshot, the run begins anew.

use std::{collections::BTreeMap, mem::discriminant, sync::Arc, time::Duration};

use konverge_apply::{Statement, conditions::whole_second, error::class_of};
use konverge_core::error::{Classify, ErrorClass};
use konverge_runtime::{Action, Priority, Reconciler, Request, object::Scope, watch::Guarded};
use konverge_workload::Workload;
use kube::{Api, Client, core::NamespaceResourceScope};

use crate::{
    annotations::{RESTARTED_AT, WorkloadSpec, ZOPP_RESTARTED_AT},
    config::Pace,
    digest::Digester,
    hold::Candidate,
    index::Shows,
    messages::{self, because, without},
    metrics::RolloutResult,
    missing::{missing, unfollowed},
    object::{SourceName, WorkloadRef},
    parts::{CONTENDED, Parts, WORKLOAD},
    plan::{Deferral, LastRollout, Verdict, View, has_succeeded, last_rollout},
    reader::ReadError,
    reasons,
    record::{Entry, Record, UnacknowledgedRollout, late_secret_of},
    time::Time,
    writer::{Decided, WriteError, Writer, Written},
};

/// The number of attempts at a workload that other clients change in between, before it has to wait.
const ATTEMPTS: usize = 3;

/// A workload that waits for others is woken by them. This is for changes without an event, such as the end of a time limit.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Reconciles one workload.
pub struct Roller {
    /// Reads workloads that have changed since their snapshot.
    pub client: Client,
    /// Writes on workloads.
    pub writer: Writer,
    /// The shared parts.
    pub parts: Arc<Parts>,
    /// The delays and limits of rollouts.
    pub pace: Pace,
}

/// A run has failed.
#[derive(Debug, thiserror::Error)]
pub enum RollError {
    /// The workload could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The workload could not be read.
    #[error("cannot read {object}: {source}")]
    Read {
        /// Which one.
        object: WorkloadRef,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// A source that its pods need could not be read.
    #[error(transparent)]
    Reference(#[from] ReadError),
    /// Another client writes on the workload all the time.
    #[error("{object} was changed by somebody else at each of {ATTEMPTS} attempts to write on it")]
    Contended {
        /// Which one.
        object: WorkloadRef,
    },
}

impl Classify for RollError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Write(error) => error.class(),
            Self::Read { source, .. } => class_of(source),
            Self::Reference(error) => error.class(),
            Self::Contended { .. } => ErrorClass::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Write(error) => error.reason(),
            Self::Read { .. } => reasons::WORKLOAD_UNREADABLE,
            Self::Reference(error) => error.reason(),
            Self::Contended { .. } => reasons::WORKLOAD_CONTENDED,
        }
    }
}

impl Reconciler for Roller {
    type Key = WorkloadRef;
    type Error = RollError;

    async fn reconcile(&self, request: Request<WorkloadRef>) -> Result<Action, RollError> {
        let parts = &*self.parts;
        let digester = parts.key.digester().await;
        for _ in 0..ATTEMPTS {
            let now = Time::now();
            let Some(view) = parts.index.view(&request.key, &digester, now) else {
                parts.opt_out(&request.key);
                return Ok(Action::Done);
            };
            let run = Run { roller: self, parts, key: &view.snapshot.key, view: &view, digester: &digester, now };
            match run.attempt().await {
                Ok(Some(action)) => return Ok(run.no_later_than(action, run.last_rollout().until())),
                Ok(None) => run.look_again().await?,
                Err(error) => {
                    // It comes back after a pause, and no free slot is kept for it meanwhile.
                    let next = parts.budget().leave(&request.key, now);
                    parts.queues.wake_next(next);
                    run.report(vec![messages::failed(&error)]);
                    return Err(error);
                }
            }
        }
        Err(RollError::Contended { object: request.key })
    }
}

/// One attempt to carry out a plan.
struct Run<'a> {
    roller: &'a Roller,
    parts: &'a Parts,
    key: &'a WorkloadRef,
    view: &'a View,
    digester: &'a Digester,
    now: Time,
}

impl Run<'_> {
    /// Does what is decided, as far as it may now. Returns `None` if the workload has changed since the decision.
    async fn attempt(&self) -> Result<Option<Action>, RollError> {
        let Self { parts, key, view, now, .. } = self;
        if view.is_decided_now {
            self.wake_triggers();
        }
        if let Some(UnacknowledgedRollout { why, changed, seen, .. }) = parts.index.take_acknowledged(key, view.uid()) {
            self.report_rollout(&changed, &why, seen);
        }
        let pods = view.snapshot.pods;
        if pods.awaited && has_succeeded(pods, *now) && parts.index.take_awaited(key, view.uid()) {
            parts.metrics.rolled(key.kind, RolloutResult::Succeeded);
        }
        if view.observed().deleting {
            parts.opt_out(key);
            return Ok(Some(Action::Done));
        }
        let spec = match view.spec() {
            Ok(spec) => spec,
            Err(invalid) => return Ok(Some(self.finish(vec![messages::invalid(invalid)]))),
        };
        if let Some(other) = &view.observed().template_of {
            return Ok(Some(self.finish(vec![messages::elsewhere(other)])));
        }
        if let Some(record) = self.outcome() {
            return self.write_outcome(record).await;
        }
        match view.plan.verdict() {
            // It is woken when what it uses was read, or when that is refused.
            None => {
                parts.queues.sources.add_all(view.plan.doubted.iter().cloned(), Priority::High, CONTENDED);
                // No other workload waits for it meanwhile.
                self.release_slot();
                self.say(Vec::new());
                Ok(Some(Action::Done))
            }
            Some(Verdict::Nothing) => Ok(Some(self.nothing_to_do())),
            Some(Verdict::Note(content)) => {
                match view.plan.contested_until.filter(|until| until > now && !view.plan.comparison.is_noted) {
                    Some(until) => {
                        self.finish(Vec::new());
                        Ok(Some(self.at(until)))
                    }
                    None => self.write_record(content).await,
                }
            }
            // Pods that are started later read what there is then.
            Some(Verdict::Roll { content, .. }) if view.snapshot.pods.rollout.empty => self.write_record(content).await,
            Some(Verdict::Roll { changed, content }) => self.roll_unless_blocked(spec, changed, content).await,
        }
    }

    fn last_rollout(&self) -> LastRollout {
        let Self { roller, view, now, .. } = self;
        let record = view.plan.comparison.record.as_ref();
        last_rollout(record, view.snapshot.pods, *now, roller.pace.rollout_timeout)
    }

    /// Returns the record with the outcome of the last rollout, if the outcome is not recorded yet.
    fn outcome(&self) -> Option<Record> {
        let Self { view, now, .. } = self;
        let comparison = &view.plan.comparison;
        let record = comparison.record.as_ref().filter(|_| comparison.is_noted && view.plan.verdict().is_some())?;
        let failed = match (self.last_rollout(), record.failed) {
            (LastRollout::Failed(_), None) => Some(whole_second(now.wall())),
            (LastRollout::Over, Some(_)) => None,
            _ => return None,
        };
        Some(Record { failed, ..record.clone() })
    }

    /// Records the outcome of the last rollout, which is reported once. The watch event of the write triggers the next run.
    async fn write_outcome(&self, outcome: Record) -> Result<Option<Action>, RollError> {
        let Self { roller, parts, key, view, .. } = self;
        let record = outcome.text();
        parts.index.writing(key, view.uid(), &record);
        match roller.writer.write_record(self.decided(&record)).await? {
            Written::Done(version) => {
                parts.index.wrote(key, view.uid(), &version, record, None);
                if outcome.failed.is_some() {
                    parts.index.take_awaited(key, view.uid());
                    parts.metrics.rolled(key.kind, RolloutResult::Failed);
                } else {
                    parts.announcer.announce(*key, key.reference(view.uid()), &messages::recovered());
                }
                Ok(Some(Action::Done))
            }
            Written::Outdated => Ok(None),
            Written::Gone => Ok(Some(Action::Done)),
        }
    }

    /// Reads a workload that has changed since its snapshot.
    async fn look_again(&self) -> Result<(), RollError> {
        let Self { roller, parts, key, view, .. } = self;
        let api: Api<Guarded<Workload>> =
            NamespaceResourceScope::api(roller.client.clone(), &key.kind, Some(&key.namespace));
        let found = api.get_opt(&key.name).await;
        let found = found.map_err(|source| RollError::Read { object: (*key).clone(), source: Box::new(source) })?;
        let work = match found {
            Some(Guarded(Ok(workload))) => {
                parts.index.apply_workload(Shows::Answer(&view.observed().version), key.kind, workload, Time::now()).1
            }
            // An object that cannot be decoded still exists: the watch has reported it, and its last known state stays.
            Some(Guarded(Err(_))) => return Ok(()),
            None => parts.index.forget(key),
        };
        let others = work.workloads.into_iter().filter(|other| other != *key);
        parts.queues.sources.add_all(work.sources, Priority::High, CONTENDED);
        parts.queues.triggers.add_all(work.triggers, Priority::Normal, CONTENDED);
        parts.queues.workloads.add_all(others, Priority::Normal, CONTENDED);
        Ok(())
    }

    /// Reports that the pods run with the current content, or why a change is held back.
    fn nothing_to_do(&self) -> Action {
        self.release_slot();
        let deferrals = &self.view.plan.comparison.deferral;
        if deferrals.values().any(|deferral| matches!(deferral, Deferral::Awaited(_, None))) {
            // It is woken when that was read.
            return Action::Done;
        }
        if let Some((message, until)) = self.deferral_of_all() {
            self.block(message, until);
            return until.map_or(Action::Done, |until| self.at(until));
        }
        self.settled(Vec::new());
        self.view.plan.comparison.again.map_or(Action::Done, |again| self.at(again))
    }

    async fn roll_unless_blocked(
        &self,
        spec: &WorkloadSpec,
        changed: &[String],
        content: &BTreeMap<String, Entry>,
    ) -> Result<Option<Action>, RollError> {
        let is_changed = |(name, _): &(&SourceName, _)| changed.contains(&name.to_string());
        let changed: BTreeMap<_, _> = self.view.uses().iter().filter(is_changed).collect();
        let why = because(changed.iter().map(|(name, used)| (*name, *used)));
        let why = without(why, &self.late(content));
        let changed: Vec<_> = changed.into_keys().cloned().collect();
        match self.blocked(spec, &changed, &why) {
            Some((message, until, action)) => {
                self.release_slot();
                self.block(message, until);
                Ok(Some(action))
            }
            None => self.roll(spec, &changed, content, &why).await,
        }
    }

    /// Returns why none of the changed sources rolls it, and until when at least.
    fn deferral_of_all(&self) -> Option<(Statement, Option<Time>)> {
        let deferral = || self.view.plan.comparison.deferral.iter().filter(|(_, deferral)| deferral.is_reported());
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
        let Self { roller, parts, key, view, now, digester } = self;
        if let Some(hold) = Candidate::of(view, spec, &roller.pace, *now).blocked_by(*now) {
            let message = messages::held(hold, why);
            let until = hold.until();
            return Some((message, until, until.map_or(Action::Done, |until| self.at(until))));
        }
        let unsatisfied = &view.plan.comparison.unsatisfied;
        if !unsatisfied.is_empty() {
            // It is woken when one of them was read.
            return Some((messages::unsatisfied(unsatisfied), None, Action::Done));
        }
        let turn = parts.index.wave_gate(key, spec.wave, changed, digester, (*now, roller.pace.rollout_timeout));
        let message = messages::not_its_wave(&turn, why).or_else(|| {
            let keys = |source: &SourceName| Some((source.clone(), &view.uses().get(source)?.keys));
            let waiting: Vec<_> = changed.iter().filter_map(keys).collect();
            let failed = parts.index.failed_before(key, &waiting, digester, *now)?;
            Some(messages::failed_elsewhere(&failed, why))
        });
        message.map(|message| (message, None, Action::After(LOOK_AGAIN)))
    }

    async fn roll(
        &self,
        spec: &WorkloadSpec,
        changed: &[SourceName],
        content: &BTreeMap<String, Entry>,
        why: &str,
    ) -> Result<Option<Action>, RollError> {
        let Self { roller, parts, key, view, now, digester } = self;
        let stamp = digester.next_stamp(view.uid(), content, view.observed().stamp.as_deref());
        let (taken, next) = {
            let mut budget = parts.budget();
            (budget.take(key, &stamp, *now), budget.next(*now))
        };
        parts.queues.wake_next(next);
        if let Err(spent) = taken {
            self.block(messages::spent(&spent, &key.namespace, why), spent.not_before());
            return Ok(Some(self.at(spent.until)));
        }
        if let Some(action) = self.wait_for_missing().await? {
            return Ok(Some(action));
        }
        let tag = digester.tag(view.uid());
        let record = Record::of_rollout(tag, content.clone(), (now.wall(), why), changed).text();
        parts.index.writing(key, view.uid(), &record);
        // To the second, as the tools write it whose annotations these are.
        let time = whole_second(now.wall()).to_string();
        let written = roller.writer.roll(self.decided(&record), &stamp, (&self.marks(spec), &time)).await;
        let version = match written {
            Ok(Written::Done(version)) => version,
            other => {
                // Whether it was done after all is not known if the answer is not; then its place is kept until the watch tells.
                if other.as_ref().err().is_none_or(WriteError::is_refused) {
                    let next = parts.budget().give_back(key, *now);
                    parts.queues.wake_next(next);
                } else {
                    let (version, why, changed) = (view.observed().version.clone(), why.to_owned(), changed.to_vec());
                    let unacknowledged =
                        UnacknowledgedRollout { version, stamp, why, changed, seen: view.plan.changed };
                    parts.index.set_unacknowledged(key, view.uid(), unacknowledged);
                }
                let result = if other.is_ok() { RolloutResult::Outdated } else { RolloutResult::Refused };
                parts.metrics.rolled(key.kind, result);
                return Ok(if other? == Written::Outdated { None } else { Some(Action::Done) });
            }
        };
        parts.index.wrote(key, view.uid(), &version, record, Some((stamp, *now)));
        self.settled(Vec::new());
        self.report_rollout(changed, why, view.plan.changed);
        Ok(Some(Action::Done))
    }

    /// Gives its place in the budget back while its pods lack a reference that it is not rolled for. A change of one of them wakes it.
    async fn wait_for_missing(&self) -> Result<Option<Action>, RollError> {
        let Self { roller, parts, key, view, now, digester } = self;
        let needed = unfollowed(&view.snapshot).map(|(name, _)| name.of(&key.namespace));
        // Before they are read, so that no change in between is missed.
        parts.index.wait_for_references(key, needed);
        let missing = missing(&roller.client, &view.snapshot, digester).await.map(|missing| missing.unsatisfied);
        if missing.as_ref().is_ok_and(Vec::is_empty) {
            return Ok(None);
        }
        let next = parts.budget().give_back(key, *now);
        parts.queues.wake_next(next);
        self.block(messages::unsatisfied(&missing?), None);
        Ok(Some(Action::Done))
    }

    /// Reports that it was rolled, why, and for which sources, of which the last changed when it was `seen` to.
    fn report_rollout(&self, changed: &[SourceName], why: &str, seen: Option<Time>) {
        let Self { parts, key, .. } = self;
        parts.metrics.rolled(key.kind, RolloutResult::Patched);
        if let Some(seen) = seen {
            parts.metrics.delayed(Time::now().since(seen).as_secs_f64());
        }
        // Each is news, also if the one before was for the same.
        self.say(Vec::new());
        self.say(vec![messages::rolled(why)]);
        for name in changed {
            let source = name.of(&key.namespace);
            let Some(uid) = parts.index.source_uid(&source) else { continue };
            parts.announcer.publish(source.reference(&uid), &messages::rolled_user(key));
        }
    }

    /// The Secrets that have not followed and are not waited for any longer.
    fn late(&self, content: &BTreeMap<String, Entry>) -> Vec<String> {
        let known = self.view.plan.comparison.record.as_ref().map(|record| &record.content);
        let late = content.keys().filter(|text| !known.is_some_and(|known| known.contains_key(*text)));
        late.filter_map(|text| Some(late_secret_of(text)?.to_string())).collect()
    }

    /// Records the content that its pods run with, and leaves the pods alone.
    async fn write_record(&self, content: &BTreeMap<String, Entry>) -> Result<Option<Action>, RollError> {
        let Self { roller, parts, key, view, digester, .. } = self;
        let record =
            Record::of_content(digester.tag(view.uid()), content.clone(), view.plan.comparison.record.as_ref()).text();
        parts.index.writing(key, view.uid(), &record);
        match roller.writer.write_record(self.decided(&record)).await? {
            Written::Done(version) => {
                parts.index.wrote(key, view.uid(), &version, record, None);
                Ok(Some(self.finish(Vec::new())))
            }
            Written::Outdated => Ok(None),
            Written::Gone => Ok(Some(Action::Done)),
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

    /// Reports that the workload waits, and why.
    fn block(&self, message: Statement, until: Option<Time>) {
        self.parts.index.wait(self.key, self.view.uid(), Some((self.now, until)));
        self.parts.metrics.held(message.reason);
        self.say(vec![message]);
    }

    /// There is nothing left to do. It leaves its place in the budget to the next one.
    fn finish(&self, messages: Vec<Statement>) -> Action {
        self.release_slot();
        self.settled(messages);
        Action::Done
    }

    /// Reports that the workload waits for nothing.
    fn settled(&self, messages: Vec<Statement>) {
        self.parts.index.wait(self.key, self.view.uid(), None);
        self.parts.index.waits_for_nothing(self.key);
        self.say(messages);
    }

    /// Reports these messages, and also a failed rollout, sources that are missing or forbidden, and a contested record.
    fn say(&self, mut messages: Vec<Statement>) {
        let comparison = &self.view.plan.comparison;
        if let (LastRollout::Failed(_), Some(record)) = (self.last_rollout(), &comparison.record) {
            let because = record.because.as_deref().unwrap_or("the cause is not recorded");
            messages.push(messages::rollout_failed(record.rolled.unwrap_or_default(), because));
        }
        let gone = comparison.unsatisfied.iter().any(|missing| missing.was_there);
        if gone && !messages.iter().any(|message| message.reason == reasons::UNSATISFIED) {
            messages.push(messages::unsatisfied(&comparison.unsatisfied));
        }
        messages.extend(self.view.plan.refused.iter().cloned());
        messages.extend(self.view.plan.contested_until.map(|_| messages::record_contested()));
        self.report(messages);
    }

    /// Reports each of these messages once, until it changes.
    fn report(&self, messages: Vec<Statement>) {
        let Self { parts, key, view, .. } = self;
        let new = parts.index.report(key, view.uid(), messages, Time::now());
        if !new.is_empty() {
            self.wake_triggers();
        }
        for statement in &new {
            parts.announcer.announce(*key, key.reference(view.uid()), statement);
        }
    }

    /// Queues the triggers of the workload, so that they report its state.
    fn wake_triggers(&self) {
        self.parts.queues.triggers.add_all(self.parts.index.triggers_of(self.key), Priority::Normal, WORKLOAD);
    }

    /// Releases the slot of the workload, and wakes the next one.
    fn release_slot(&self) {
        let next = self.parts.budget().release_slot(self.key, self.view.observed().stamp.as_deref(), self.now);
        self.parts.queues.wake_next(next);
    }

    /// Runs the workload again at this time at the latest, if there is one.
    fn no_later_than(&self, action: Action, until: Option<Time>) -> Action {
        match (action, until.map(|until| self.at(until))) {
            (Action::Done, Some(latest)) => latest,
            (Action::After(after), Some(Action::After(latest))) => Action::After(after.min(latest)),
            (action, _) => action,
        }
    }

    /// Looks again shortly after this time.
    fn at(&self, until: Time) -> Action {
        let rest = Duration::try_from(until.since(self.now)).unwrap_or_default();
        Action::After(rest + Duration::from_millis(10))
    }
}

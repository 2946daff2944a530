//! One workload from what it uses to what its pods run with: look, decide, write, report.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use konverge_apply::{
    conditions::whole_second,
    events::{EventSink, Notice},
};
use konverge_core::error::{Classify, ErrorClass};
use konverge_runtime::{Action, Priority, Queue, Reconciler, Request, object::Scope, watch::Guarded};
use konverge_workload::{Progress, Workload};
use kube::{Api, Client, core::NamespaceResourceScope, runtime::events::EventType};

use crate::{
    budget::{Budget, Spent},
    decision::Verdict,
    declarations::{RESTARTED_AT, WorkloadAsks, ZOPP_RESTARTED_AT},
    digest::Digester,
    digest_key::Key,
    hold::Candidate,
    index::{Index, Shows, View},
    messages::{Message, because, without},
    metrics::Metrics,
    object::{SourceName, SourceRef, WorkloadRef},
    record::{Entry, Record},
    trigger::TriggerRef,
    wait::{Back, late_secret_of},
    writer::{Decided, WriteError, Writer, Written},
};

/// The `action` of every event of this operator.
pub(crate) const ACTION: &str = "Roll";

/// Why a workload is looked at: there is room for it now.
pub const ROOM: &str = "room";

/// It was found changed while it was worked on.
pub const CONTENDED: &str = "contended";

/// Why an object is told how it stands: something was said of its workload.
pub const WORKLOAD: &str = "workload";

/// So often a workload that changes under our hands is read and decided upon anew before it has to wait.
const ATTEMPTS: usize = 3;

/// Who waits for others is woken by them; this is for what nobody tells, such as that one has had its time.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What the platform decides.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// The least time between two rollouts of a workload that does not say.
    pub min_interval: SignedDuration,
    /// How long to wait for more changes after one.
    pub debounce: SignedDuration,
    /// How long a rollout under way is waited for.
    pub longest: SignedDuration,
}

/// Brings one workload in step.
pub struct Roller {
    /// Reads workloads that changed under our hands.
    pub client: Client,
    /// Writes on workloads.
    pub writer: Writer,
    /// What is known.
    pub index: Arc<Index>,
    /// How many there may be.
    pub budget: Arc<Mutex<Budget>>,
    /// Makes digests.
    pub key: Key,
    /// Wakes others.
    pub queue: Queue<WorkloadRef>,
    /// Has sources read.
    pub sources: Queue<SourceRef>,
    /// Has objects told how their workloads stand.
    pub triggers: Queue<TriggerRef>,
    /// Where events go.
    pub events: EventSink,
    /// What is counted.
    pub metrics: Metrics,
    /// What the platform decides.
    pub policy: Policy,
}

/// A run that did not come to its end.
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
        /// What the client said.
        source: Box<kube::Error>,
    },
    /// Somebody else writes on the workload all the time.
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
            Self::Read { .. } | Self::Contended { .. } => ErrorClass::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Write(error) => error.reason(),
            Self::Read { .. } => "WorkloadUnreadable",
            Self::Contended { .. } => "WorkloadContended",
        }
    }
}

/// What became of an attempt.
enum Attempt {
    Ended(Action),
    /// What was decided upon is not what is there any more.
    Outdated,
}

const DONE: Attempt = Attempt::Ended(Action::Done);

impl Reconciler for Roller {
    type Key = WorkloadRef;
    type Error = RollError;

    async fn reconcile(&self, request: Request<WorkloadRef>) -> Result<Action, RollError> {
        let key = &request.key;
        let digester = self.key.digester().await;
        for _ in 0..ATTEMPTS {
            let now = Timestamp::now();
            let Some(view) = self.index.view(key, &digester, now) else {
                self.leave(key);
                return Ok(Action::Done);
            };
            let attempt = Run { roller: self, key, digester: &digester, view: &view, now }.attempt().await;
            match attempt {
                Ok(Attempt::Ended(action)) => return Ok(action),
                Ok(Attempt::Outdated) => self.look_again(key, &view.version).await?,
                Err(error) => {
                    self.say(key, &view.uid, vec![Message::failed(&error)]);
                    return Err(error);
                }
            }
        }
        Err(RollError::Contended { object: key.clone() })
    }
}

impl Roller {
    /// Reads a workload that is not what the watch has shown.
    async fn look_again(&self, key: &WorkloadRef, outdated: &str) -> Result<(), RollError> {
        let api: Api<Guarded<Workload>> =
            NamespaceResourceScope::api(self.client.clone(), &key.kind, Some(&key.namespace));
        let found = api.get_opt(&key.name).await;
        let found = found.map_err(|source| RollError::Read { object: key.clone(), source: Box::new(source) })?;
        let work = match found {
            Some(Guarded(Ok(workload))) => {
                self.index.show_by(Shows::Answer(outdated), key.kind, workload, Timestamp::now()).1
            }
            // What cannot be understood is not gone: the watch has told, and what was known stays.
            Some(Guarded(Err(_))) => return Ok(()),
            None => self.index.forget(key),
        };
        for source in work.sources {
            self.sources.add(source, Priority::High, CONTENDED);
        }
        for trigger in work.triggers {
            self.triggers.add(trigger, Priority::Normal, CONTENDED);
        }
        for other in work.workloads.into_iter().filter(|other| other != key) {
            self.queue.add(other, Priority::Normal, CONTENDED);
        }
        Ok(())
    }

    /// It takes no part any more.
    fn leave(&self, key: &WorkloadRef) {
        let next = self.budget().done(key);
        self.index.leave(key);
        self.wake(next);
    }

    /// Says each of these once, until something else is said.
    fn say(&self, key: &WorkloadRef, uid: &str, messages: Vec<Message>) {
        let new = self.index.say(key, uid, messages, Timestamp::now());
        if !new.is_empty() {
            self.tell(key);
        }
        for Message { reason, text, is_problem } in new {
            if is_problem {
                tracing::warn!(object = %key, reason, "{text}");
            } else {
                tracing::info!(object = %key, reason, "{text}");
            }
            let kind = if is_problem { EventType::Warning } else { EventType::Normal };
            self.events.send(Notice { regarding: key.reference(uid), kind, reason, action: ACTION, note: text });
        }
    }

    /// Has those that ask for its rollouts told how it stands.
    fn tell(&self, key: &WorkloadRef) {
        for trigger in self.index.triggers_of(key) {
            self.triggers.add(trigger, Priority::Normal, WORKLOAD);
        }
    }

    fn wake(&self, next: Option<WorkloadRef>) {
        if let Some(next) = next {
            self.queue.add(next, Priority::Normal, ROOM);
        }
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One attempt.
struct Run<'a> {
    roller: &'a Roller,
    key: &'a WorkloadRef,
    digester: &'a Digester,
    view: &'a View,
    now: Timestamp,
}

impl Run<'_> {
    async fn attempt(&self) -> Result<Attempt, RollError> {
        let Self { roller, key, view, .. } = self;
        if view.is_decided_now {
            roller.tell(key);
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
                if let Some((message, until)) = self.awaited() {
                    self.hold(message, until);
                    return Ok(Attempt::Ended(until.map_or(Action::Done, |until| self.at(until))));
                }
                self.settled(Vec::new());
                Ok(Attempt::Ended(view.again.map_or(Action::Done, |again| self.at(again))))
            }
            Some(Verdict::Note(content)) => self.note(content).await,
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

    /// Which Secret has to follow before it is rolled, and until when that is waited for.
    fn awaited(&self) -> Option<(Message, Option<Timestamp>)> {
        let back = || self.view.back.iter().filter(|(_, back)| back.is_told());
        let changed = because(back().filter_map(|(name, _)| Some((name, self.view.uses.get(name)?))));
        let until = back().filter_map(|(_, back)| back.until()).min();
        let (_, first) = back().min_by_key(|(_, back)| back.until())?;
        Some((Message::awaited(first, &changed)?, until))
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
            breaker: view.breaker.as_ref().map(|(until, _)| *until),
            running: view.running,
            longest: policy.longest,
        };
        if let Some(hold) = candidate.hold(*now) {
            let message = Message::held(hold, why, view.breaker.as_ref().map(|(_, source)| source));
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
        let stamp = digester.stamp(&view.uid, content);
        if let Err(spent) = roller.budget().take(key, &stamp, *now) {
            let Spent { until, .. } = spent;
            self.hold(Message::spent(&spent, why), Some(until));
            return Ok(Attempt::Ended(self.at(until)));
        }
        let record = Record {
            tag: digester.tag(&view.uid),
            content: content.clone(),
            rolled: Some(*now),
            because: Some(why.to_owned()),
        };
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
                }
                roller.metrics.rolled(key.kind, if other.is_ok() { "outdated" } else { "failed" });
                return Ok(if other? == Written::Outdated { Attempt::Outdated } else { DONE });
            }
        };
        roller.index.wrote(key, &view.uid, &version, record, Some((stamp, *now)));
        roller.metrics.rolled(key.kind, "rolled");
        if let Some(changed) = view.changed {
            roller.metrics.delayed(Timestamp::now().duration_since(changed).as_secs_f64());
        }
        // Each is news, also if the one before was for the same.
        self.settled(Vec::new());
        self.settled(vec![Message::rolled(why)]);
        for name in changed {
            let source = name.of(&key.namespace);
            let Some(uid) = roller.index.source_uid(&source) else { continue };
            let Message { reason, text, .. } = Message::rolled_user(key);
            let regarding = source.reference(&uid);
            roller.events.send(Notice { regarding, kind: EventType::Normal, reason, action: ACTION, note: text });
        }
        Ok(DONE)
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

    /// And what may not be read.
    fn say(&self, mut messages: Vec<Message>) {
        messages.extend(self.view.refused.iter().cloned());
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

/// Whether nobody will say more of a rollout.
pub(crate) fn is_over(progress: Progress) -> bool {
    matches!(progress, Progress::Ready | Progress::Failed | Progress::Unknown)
}

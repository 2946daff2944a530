//! One workload from what it uses to what its pods run with: look, decide, write, report.

mod attempt;

use std::sync::Arc;

use konverge_apply::{Statement, error::class_of};
use konverge_core::error::{Classify, ErrorClass};
use konverge_runtime::{Action, Priority, Reconciler, Request, object::Scope, watch::Guarded};
use konverge_workload::Workload;
use kube::{Api, Client, core::NamespaceResourceScope};

use crate::{
    config::Pace,
    index::Shows,
    messages,
    object::WorkloadRef,
    parts::Parts,
    reasons,
    time::Time,
    wakeups::{CONTENDED, WORKLOAD},
    writer::{WriteError, Writer},
};
use attempt::{Attempt, Run};

/// So often a workload that changes under our hands is read and decided upon anew before it has to wait.
const ATTEMPTS: usize = 3;

/// Reconciles one workload.
pub struct Roller {
    /// Reads workloads that changed under our hands.
    pub client: Client,
    /// Writes on workloads.
    pub writer: Writer,
    /// The shared parts.
    pub parts: Arc<Parts>,
    /// How soon a workload may be rolled.
    pub pace: Pace,
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
        /// The error of the client.
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
            Self::Read { source, .. } => class_of(source),
            Self::Contended { .. } => ErrorClass::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Write(error) => error.reason(),
            Self::Read { .. } => reasons::WORKLOAD_UNREADABLE,
            Self::Contended { .. } => reasons::WORKLOAD_CONTENDED,
        }
    }
}

impl Reconciler for Roller {
    type Key = WorkloadRef;
    type Error = RollError;

    async fn reconcile(&self, request: Request<WorkloadRef>) -> Result<Action, RollError> {
        let key = &request.key;
        let digester = self.parts.key.digester().await;
        for _ in 0..ATTEMPTS {
            let now = Time::now();
            let Some(view) = self.parts.index.view(key, &digester, now) else {
                self.opt_out(key);
                return Ok(Action::Done);
            };
            let attempt = Run { roller: self, key, digester: &digester, view: &view, now }.attempt().await;
            match attempt {
                Ok(Attempt::Ended(action)) => return Ok(action),
                Ok(Attempt::Outdated) => self.look_again(key, &view.observed().version).await?,
                Err(error) => {
                    self.say(key, view.uid(), vec![messages::failed(&error)]);
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
                self.parts.index.show_by(Shows::Answer(outdated), key.kind, workload, Time::now()).1
            }
            // An object that cannot be decoded still exists: the watch has reported it, and its last known state stays.
            Some(Guarded(Err(_))) => return Ok(()),
            None => self.parts.index.forget(key),
        };
        let others = work.workloads.into_iter().filter(|other| other != key);
        self.parts.queues.sources.add_all(work.sources, Priority::High, CONTENDED);
        self.parts.queues.triggers.add_all(work.triggers, Priority::Normal, CONTENDED);
        self.parts.queues.workloads.add_all(others, Priority::Normal, CONTENDED);
        Ok(())
    }

    /// A workload has opted out.
    fn opt_out(&self, key: &WorkloadRef) {
        let next = self.parts.budget().done(key);
        self.parts.index.opt_out(key);
        self.parts.queues.wake_next(next);
    }

    /// Reports each of these once, until the statement changes.
    fn say(&self, key: &WorkloadRef, uid: &str, messages: Vec<Statement>) {
        let new = self.parts.index.say(key, uid, messages, Time::now());
        if !new.is_empty() {
            self.tell(key);
        }
        for statement in &new {
            self.parts.announcer.announce(key, key.reference(uid), statement);
        }
    }

    /// Has those that ask for its rollouts told how it stands.
    fn tell(&self, key: &WorkloadRef) {
        self.parts.queues.triggers.add_all(self.parts.index.triggers_of(key), Priority::Normal, WORKLOAD);
    }
}

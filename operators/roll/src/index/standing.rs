//! How all that an object asks for stands, for each workload and each source.

use std::{cell::LazyCell, collections::BTreeSet};

use jiff::Timestamp;
use konverge_workload::{Progress, TemplateOf};

use super::{Index, Inner, Known, view::Judged};
use crate::{
    decision::Verdict,
    digest::Digester,
    messages::Message,
    object::{SourceName, WorkloadRef},
    reasons,
    trigger::{Asks, Shown, TriggerRef},
    vault::{Standing, Version},
    wait::Back,
};

/// How things stand with what an object asks for, for one workload and one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    /// The workload.
    pub workload: WorkloadRef,
    /// The source.
    pub source: SourceName,
    /// How they stand.
    pub state: State,
}

/// How a workload and a source that an object asks for stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// There is no such workload.
    NoWorkload,
    /// It does not allow objects of that namespace to have it rolled.
    NotAllowed,
    /// It says that it is never to be rolled.
    OptedOut,
    /// It runs pods of another's template, and has none that could be changed.
    Elsewhere(TemplateOf),
    /// Nothing is rolled for it, because it asks for what cannot be understood.
    Invalid(String),
    /// Vault does not have it, or does not tell.
    Vault(Standing),
    /// What Vault tells is older than what the pods run with.
    Older {
        /// What Vault tells.
        told: Version,
        /// What the pods run with.
        noted: Version,
    },
    /// It is not known yet; whoever finds out says so.
    NotYet,
    /// The object says that nothing is to be rolled for its sake.
    Suspended,
    /// It changed, and is about to be rolled.
    Pending(Pending),
    /// The pods run with this version.
    InStep(InStep),
}

/// What keeps a workload from being rolled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pending {
    /// What was said of that; nothing if it is rolled at once.
    pub said: Option<Message>,
    /// Until when at the least, if that is known.
    pub until: Option<Timestamp>,
}

/// With what the pods of a workload run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InStep {
    /// The workload's uid.
    pub uid: String,
    /// The version.
    pub version: Version,
    /// When it was last rolled for this source.
    pub rolled: Option<Timestamp>,
    /// Why then, and who had asked for that.
    pub because: Option<String>,
    /// Why it was rolled since for something else. Its pods are the same that run with this version, however they stand.
    pub since: Option<String>,
    /// How its pods stand since.
    pub progress: Progress,
}

impl Index {
    /// How all that an object asks for stands.
    pub fn outlook(&self, key: &TriggerRef, digester: &Digester, now: Timestamp) -> Vec<Outlook> {
        let inner = self.lock();
        let Some(asks) = inner.triggers.get(key).and_then(Shown::asks) else { return Vec::new() };
        let mut targets: BTreeSet<_> = asks.targets.iter().collect();
        targets.extend(inner.chosen(asks).filter(|(_, known)| !known.says_never()).map(|(key, _)| key));
        let mut outlooks = Vec::new();
        for workload in targets {
            let known = inner.workloads.get(workload);
            // Once for all its sources.
            let judged = LazyCell::new(|| known.map(|known| inner.judge(workload, known, digester, now)));
            outlooks.extend(asks.sources.keys().map(|source| {
                let state = match known {
                    None => State::NoWorkload,
                    Some(known) => inner.state((key, asks), (workload, known), source, digester, || judged.as_ref()),
                };
                Outlook { workload: workload.clone(), source: source.clone(), state }
            }));
        }
        outlooks
    }
}

impl Inner {
    fn state<'a>(
        &self,
        (key, asks): (&TriggerRef, &Asks),
        (workload, known): (&WorkloadRef, &Known),
        source: &SourceName,
        digester: &Digester,
        judged: impl FnOnce() -> Option<&'a Judged>,
    ) -> State {
        match &known.asks {
            Err(invalid) => return State::Invalid(invalid.to_string()),
            Ok(own) if !own.allows(&workload.namespace, &key.namespace) => return State::NotAllowed,
            Ok(own) if own.never => return State::OptedOut,
            Ok(_) if asks.suspended => return State::Suspended,
            Ok(_) => {}
        }
        if let Some(other) = &known.template_of {
            return State::Elsewhere(other.clone());
        }
        let pods = self.runner(workload, known).rollout;
        let standing = self.sources.get(&source.of("")).map(|source| source.standing.clone()).unwrap_or_default();
        let Standing::Live(version) = standing else {
            return if standing == Standing::Unknown { State::NotYet } else { State::Vault(standing) };
        };
        let text = source.to_string();
        let record = known.record(digester);
        let noted = record.as_ref().and_then(|record| record.content.get(&text)?.version.clone());
        if let Some(noted) = noted.filter(|noted| version.is_before(noted)) {
            return State::Older { told: version, noted };
        }
        let Some(judged) = judged() else { return State::NoWorkload };
        let back = judged.back.get(source);
        let is_back = back.is_some_and(Back::is_told);
        if matches!(back, Some(Back::Awaited(_, None))) {
            return State::NotYet;
        }
        match &judged.verdict {
            Some(Verdict::Roll { changed, .. }) if changed.contains(&text) && !pods.empty => {
                State::Pending(known.held())
            }
            Some(_) if is_back => State::Pending(known.held()),
            None | Some(Verdict::Note(_)) => State::NotYet,
            Some(Verdict::Roll { .. } | Verdict::Nothing) => {
                let (own, other) = match record {
                    Some(record) if record.is_for(&text) => (Some(record), None),
                    other => (None, other),
                };
                State::InStep(InStep {
                    uid: known.uid.clone(),
                    version,
                    rolled: own.as_ref().and_then(|record| record.rolled),
                    because: own.and_then(|record| record.because),
                    since: other.and_then(|record| record.because),
                    progress: pods.progress,
                })
            }
        }
    }
}

impl Known {
    /// What keeps it from being rolled.
    fn held(&self) -> Pending {
        Pending {
            said: self.said.iter().find(|message| message.reason != reasons::ROLLED).cloned(),
            until: self.pending.and_then(|(_, until)| until),
        }
    }

    /// Whether it says that it is never to be rolled, whoever asks.
    fn says_never(&self) -> bool {
        self.asks.as_ref().is_ok_and(|own| own.never)
    }
}

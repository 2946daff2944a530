//! How each workload that an object asks for stands, in a word. Pure.

use konverge_core::names::few;
use konverge_workload::Progress;

use super::state::{InSync, PendingRollout, TargetState, TargetStatus};
use crate::{
    messages::template_elsewhere,
    object::{SourceName, WorkloadRef},
    reasons,
    trigger::TriggerRef,
    vault::{SecretState, Version},
};

/// The party that can do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum How {
    Ready,
    /// It goes on by itself.
    Going,
    /// It goes on by itself as soon as something outside is mended.
    Waiting,
    /// Somebody has to change an object.
    Stalled,
}

/// How one thing stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) how: How,
    pub(super) reason: &'static str,
    pub(super) text: String,
}

/// How each workload stands, which is how the worst of its sources does; nothing while that is not known.
pub(super) fn words(key: &TriggerRef, target_statuses: &[TargetStatus]) -> Vec<Option<Word>> {
    let groups = target_statuses.chunk_by(|one, next| one.workload == next.workload);
    groups
        .map(|group| {
            let words: Vec<_> = group.iter().map(|target| word(key, target)).collect();
            let is_known = words.iter().all(Option::is_some);
            let known = words.into_iter().flatten().filter(|word| is_known || word.how >= How::Waiting);
            let worst = known.reduce(|worst, word| if word.how > worst.how { word } else { worst })?;
            if worst.how > How::Ready {
                return Some(worst);
            }
            let versions = group.iter().filter_map(|target| Some(what(&target.source, &target.in_step()?.version)));
            let text = format!("the pods of {} run with {}", group[0].workload, few(versions));
            Some(Word { text, ..worst })
        })
        .collect()
}

/// A source in a version.
pub(super) fn what(source: &SourceName, version: &Version) -> String {
    match version.number {
        0 => format!("what is in {source}"),
        number => format!("version {number} of {source}"),
    }
}

/// How one workload and one source stand; nothing while it is not known.
fn word(key: &TriggerRef, target_statuses: &TargetStatus) -> Option<Word> {
    let TargetStatus { workload, source, state } = target_statuses;
    Some(match state {
        TargetState::NotYet => return None,
        TargetState::NoWorkload => Word::new(
            How::Waiting,
            reasons::WORKLOAD_MISSING,
            format!(
                "{workload} does not exist or is not watched: its name may be wrong, or --kinds and --namespace leave it out. The operator waits for it, and \
                 the content of Vault at that time rolls nothing"
            ),
        ),
        TargetState::NotAllowed => Word::new(
            How::Stalled,
            reasons::NOT_ALLOWED,
            format!(
                "{workload} is in another namespace and does not allow this one to have it rolled; annotate it with roll.konverge.dev/allow-from={}",
                key.namespace
            ),
        ),
        TargetState::OptedOut => Word::new(
            How::Stalled,
            reasons::OPTED_OUT,
            format!("{workload} says roll.konverge.dev/on-change=false, and so it is never rolled"),
        ),
        TargetState::Elsewhere(other) => {
            Word::new(How::Stalled, reasons::TEMPLATE_ELSEWHERE, format!("{workload}: {}", template_elsewhere(other)))
        }
        TargetState::Invalid(cause) => Word::new(
            How::Stalled,
            reasons::INVALID_ANNOTATION,
            format!("on {workload} {cause}. It is not rolled before that is fixed"),
        ),
        TargetState::Vault(state) => of_secret(source, state),
        TargetState::Older { told, noted } => Word::new(
            How::Going,
            reasons::OLDER_VERSION,
            format!(
                "Vault states version {} of {source}, and the pods of {workload} run with version {}, which is newer. Nothing is rolled before \
                 Vault has a newer one",
                told.number, noted.number
            ),
        ),
        TargetState::Suspended => Word::new(How::Stalled, reasons::SUSPENDED, String::new()),
        TargetState::PendingRollout(PendingRollout { said: None, .. }) => {
            Word::new(How::Going, reasons::ROLLOUT_PENDING, format!("{source} changed, and {workload} is rolled"))
        }
        TargetState::PendingRollout(PendingRollout { said: Some(said), .. }) => {
            let (how, reason) = match said.reason {
                reasons::NOT_FOLLOWED => (How::Waiting, reasons::NOT_FOLLOWED),
                _ => (How::Going, reasons::ROLLOUT_PENDING),
            };
            Word::new(how, reason, format!("{workload}: {}", said.text))
        }
        TargetState::InSync(in_sync) => of_pods(workload, source, in_sync),
    })
}

/// The word for a secret that Vault does not show.
fn of_secret(source: &SourceName, state: &SecretState) -> Word {
    match state {
        SecretState::Failing { reason, text } => {
            Word::new(How::Waiting, reason, format!("{text}. Nothing is rolled; the operator asks again"))
        }
        SecretState::Deleted => Word::new(
            How::Waiting,
            reasons::SECRET_DELETED,
            format!(
                "the newest version of {source} is deleted or destroyed. Nothing is rolled before there is another one, or it is undeleted and changes"
            ),
        ),
        _ => Word::new(
            How::Waiting,
            reasons::SECRET_NOT_FOUND,
            format!("there is no {source}; create it, or correct the path. Nothing is rolled"),
        ),
    }
}

/// The word for a workload that was rolled for the version that there is.
fn of_pods(workload: &WorkloadRef, source: &SourceName, in_sync: &InSync) -> Word {
    let InSync { version, rolled, since, progress, .. } = in_sync;
    let what = what(source, version);
    match (rolled, since, progress) {
        (Some(_), _, Progress::Running | Progress::Unready) => Word::new(
            How::Going,
            reasons::ROLLOUT_RUNNING,
            format!("{workload} was rolled for {what}, and its new pods are not all there yet"),
        ),
        (Some(_), _, Progress::Failed) => Word::new(
            How::Going,
            reasons::ROLLOUT_FAILED,
            format!("{workload} was rolled for {what}, and its new pods do not become ready"),
        ),
        // The source of a later rollout reports how that goes. A failed rollout keeps this version from the pods, too.
        (None, Some(since), Progress::Failed) => Word::new(
            How::Going,
            reasons::ROLLOUT_FAILED,
            format!(
                "the pods of {workload} that are to run with {what} do not become ready; it was rolled since: {since}"
            ),
        ),
        _ => Word::new(How::Ready, reasons::IN_SYNC, format!("the pods of {workload} run with {what}")),
    }
}

impl Word {
    pub(super) fn new(how: How, reason: &'static str, text: String) -> Self {
        Self { how, reason, text }
    }
}

//! What an object that asks for rollouts is told of how it stands: its status, and an event where there is something new. Pure; the time is
//! handed in.

use std::time::Duration;

use jiff::Timestamp;
use konverge_apply::conditions::{Moment, READY, Reason};
use konverge_workload::Progress;

use crate::{
    index::{InStep, Outlook, State},
    messages::Message,
    reasons,
    trigger::{Shown, TriggerRef},
    vault::Standing,
    vault_sync_status::{Baseline, Status, VaultSync},
};

/// The original's words.
const IN_SYNC: &str = "Already in Sync";
const SYNCED: &str = "Synced";
const ERROR: &str = "Error";

/// What a condition says that has nothing to say.
const UNKNOWN: Reason = Reason::new("Unknown");

/// What is to be said of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Its status.
    pub status: Status,
    /// What was not said before.
    pub news: Vec<Message>,
    /// When to look again though nothing happens.
    pub again: Option<Duration>,
}

/// Who can do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum How {
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
struct Word {
    how: How,
    reason: &'static str,
    text: String,
}

/// What is to be said; nothing while it is not known.
pub fn tell(key: &TriggerRef, shown: &Shown, outlook: &[Outlook], now: Timestamp) -> Option<Told> {
    let mut word = worst(key, shown, outlook)?;
    let asks = shown.asks();
    if let Some(note) = asks.and_then(|asks| asks.notes.first()).filter(|_| word.how <= How::Going) {
        word = Word::new(word.how, reasons::INVALID_TIMESTAMP, format!("{}; but {note}", word.text));
    }
    let before = &shown.status;
    let last_rollout = outlook.iter().filter_map(Outlook::rolled).max().max(before.last_rollout);
    let every = asks.map(|asks| asks.every).unwrap_or_default();
    let recent = last_rollout.filter(|_| word.how <= How::Going).and_then(|rolled| {
        let rest = every.checked_sub(now.duration_since(rolled).unsigned_abs())?;
        (!rest.is_zero()).then_some(rest)
    });
    let is_known = outlook.iter().all(|outlook| matches!(outlook.state, State::InStep(_)));
    let sync_status = match (word.how, recent) {
        (How::Waiting | How::Stalled, _) => Some(ERROR.to_owned()),
        // The original says nothing while it works.
        _ if !is_known => before.vault_sync.as_ref().map(|said| said.sync_status.clone()),
        (_, Some(_)) => Some(SYNCED.to_owned()),
        (_, None) => Some(IN_SYNC.to_owned()),
    };
    let mut conditions = before.conditions.clone();
    let moment = Moment { generation: shown.generation, now };
    let reason = Reason::parse(word.reason).unwrap_or(UNKNOWN);
    match word.how {
        How::Ready => conditions.ready(&reason, &word.text, moment),
        How::Going | How::Waiting => conditions.reconciling(&reason, &word.text, moment),
        How::Stalled => conditions.stalled(&reason, &word.text, moment),
    }
    let status = Status {
        vault_sync: sync_status.map(|sync_status| VaultSync { sync_status }),
        observed_generation: shown.generation,
        uid: shown.uid.clone(),
        baseline: outlook.iter().filter_map(|outlook| outlook.baseline(before)).collect(),
        last_rollout,
        conditions,
    };
    let news = news(&word, &status, before, outlook);
    Some(Told { status, news, again: recent })
}

/// What is worst of all that it asks for; nothing while that is not known.
fn worst(key: &TriggerRef, shown: &Shown, outlook: &[Outlook]) -> Option<Word> {
    if let Err(cause) = &shown.asks {
        return Some(Word::new(
            How::Stalled,
            reasons::INVALID_SPEC,
            format!("{cause}. Nothing is rolled for its sake"),
        ));
    }
    let words: Vec<_> = outlook.iter().map(|outlook| word(key, outlook)).collect();
    let is_known = words.iter().all(Option::is_some);
    // What is wrong already is said before all is known.
    let words = words.into_iter().flatten().filter(|word| is_known || word.how >= How::Waiting);
    words.reduce(|worst, word| if word.how > worst.how { word } else { worst })
}

fn news(word: &Word, status: &Status, before: &Status, outlook: &[Outlook]) -> Vec<Message> {
    let mut news = Vec::new();
    if status.last_rollout != before.last_rollout {
        let rolled = outlook.iter().filter(|outlook| outlook.rolled() == status.last_rollout);
        news.extend(rolled.map(|outlook| Message::trigger_rolled(&outlook.workload, &outlook.source)));
    }
    let said = before.conditions.get(READY);
    let is_new = said.is_none_or(|said| said.reason != word.reason);
    let is_problem =
        word.how >= How::Waiting || word.reason == reasons::INVALID_TIMESTAMP || word.reason == reasons::ROLLOUT_FAILED;
    let was_problem = said.is_some_and(|said| said.status != "True");
    if is_new && (is_problem || was_problem && word.how == How::Ready) {
        news.push(Message { reason: word.reason, text: word.text.clone(), is_problem });
    }
    news
}

/// How one workload and one source stand; nothing while it is not known.
fn word(key: &TriggerRef, outlook: &Outlook) -> Option<Word> {
    let Outlook { workload, source, state } = outlook;
    Some(match state {
        State::NotYet => return None,
        State::NoWorkload => Word::new(
            How::Waiting,
            reasons::WORKLOAD_MISSING,
            format!("there is no {workload}; it is waited for, and what is in Vault when it comes rolls nothing"),
        ),
        State::NotAllowed => Word::new(
            How::Stalled,
            reasons::NOT_ALLOWED,
            format!(
                "{workload} is in another namespace and does not allow this one to have it rolled; annotate it with roll.konverge.dev/allow-from={}",
                key.namespace
            ),
        ),
        State::OptedOut => Word::new(
            How::Stalled,
            reasons::OPTED_OUT,
            format!("{workload} says roll.konverge.dev/on-change=false, and so it is never rolled"),
        ),
        State::Invalid(cause) => Word::new(
            How::Stalled,
            reasons::INVALID_ANNOTATION,
            format!("on {workload} {cause}. It is not rolled before that is mended"),
        ),
        State::Vault(Standing::Failing { reason, text }) => {
            Word::new(How::Waiting, reason, format!("{text}. Nothing is rolled, and it is asked again"))
        }
        State::Vault(Standing::Deleted) => Word::new(
            How::Waiting,
            reasons::SECRET_DELETED,
            format!(
                "the newest version of {source} is deleted or destroyed. Nothing is rolled before there is another one, or it is undeleted and changes"
            ),
        ),
        State::Vault(_) => Word::new(
            How::Waiting,
            reasons::SECRET_MISSING,
            format!("there is no {source}; write it, or mend the path. Nothing is rolled"),
        ),
        State::Older { told, noted } => Word::new(
            How::Going,
            reasons::OLDER_VERSION,
            format!(
                "Vault tells of version {} of {source}, and the pods of {workload} run with version {}, which is newer. Nothing is rolled before \
                 there is a newer one still",
                told.number, noted.number
            ),
        ),
        State::Pending(said) if said.is_empty() => {
            Word::new(How::Going, reasons::ROLLOUT_PENDING, format!("{source} changed, and {workload} is rolled"))
        }
        State::Pending(said) => Word::new(How::Going, reasons::ROLLOUT_PENDING, format!("{workload}: {said}")),
        State::InStep(InStep { version, rolled, progress, .. }) => {
            let what = match version.number {
                0 => format!("what is in {source}"),
                number => format!("version {number} of {source}"),
            };
            match (rolled, progress) {
                (Some(_), Progress::Running | Progress::Unready) => Word::new(
                    How::Going,
                    reasons::ROLLOUT_RUNNING,
                    format!("{workload} was rolled for {what}, and its new pods are not all there yet"),
                ),
                (Some(_), Progress::Failed) => Word::new(
                    How::Going,
                    reasons::ROLLOUT_FAILED,
                    format!("{workload} was rolled for {what}, and its new pods do not become ready"),
                ),
                _ => Word::new(How::Ready, reasons::IN_SYNC, format!("the pods of {workload} run with {what}")),
            }
        }
    })
}

impl Word {
    fn new(how: How, reason: &'static str, text: String) -> Self {
        Self { how, reason, text }
    }
}

impl Outlook {
    fn rolled(&self) -> Option<Timestamp> {
        match &self.state {
            State::InStep(in_step) => in_step.rolled,
            _ => None,
        }
    }

    /// With what the pods run, or ran when that was last known.
    fn baseline(&self, before: &Status) -> Option<Baseline> {
        let (workload, source) = (self.workload.to_string(), self.source.to_string());
        match &self.state {
            State::InStep(InStep { uid, version, .. }) => Some(Baseline {
                workload,
                uid: uid.clone(),
                source,
                version: version.number,
                created: version.created.clone(),
            }),
            _ => before.baseline.iter().find(|noted| noted.workload == workload && noted.source == source).cloned(),
        }
    }
}

#[cfg(test)]
mod tests;

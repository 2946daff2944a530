//! Changes of single keys that are made together, because they came while another change of their environment was being made.
//!
//! PostgreSQL makes the changes of one environment one after the other: each waits for the row of the environment. So those that wait go with the next call,
//! and share its look at the rights, its lock and its commit. A change that comes alone waits for nothing.
//!
//! Guarantees: only changes by one principal with the same rights share a call, so nobody waits for strangers or fails with them. If a call is refused
//! for one of its changes, nothing of it happened, and each is made alone. Any other failure is that of all.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until, timeout},
};

use super::{
    AuditRow, Change, SecretRow, Store, StoreError,
    keys::{KeyChange, KeysChange},
};

/// Changes in one call, at most.
const TOGETHER: usize = 32;
/// A larger value goes alone: it is not copied, and holds nobody up.
const SMALL: usize = 16 * 1024;
/// So long a change waits for the calls before its own, as one that comes alone waits for a connection. So it is made, if at all, while its signature is
/// still remembered by replicas that got the same request.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than a call takes as long as its connection is there: PostgreSQL ends a statement after a minute.
const TURN: Duration = Duration::from_secs(80);

/// The changes that wait, by environment and principal.
#[derive(Clone, Default)]
pub(super) struct BatchedChanges(Arc<Mutex<HashMap<Place, Arc<Queue>>>>);

type Place = (String, String);

impl fmt::Debug for BatchedChanges {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("BatchedChanges")
    }
}

#[derive(Default)]
struct Queue {
    /// Held by the one that makes a call.
    turn: tokio::sync::Mutex<()>,
    waiting: Mutex<VecDeque<Waiting>>,
}

struct Waiting {
    change: SingleChange,
    made: oneshot::Sender<Result<Change, StoreError>>,
}

/// The change of one key, in a transaction of its own or together with others.
pub(super) struct SingleChange {
    environment_id: String,
    /// The workspace that it is in, if the key is set.
    workspace_id: Option<String>,
    key: String,
    value: Option<SecretRow>,
    audit: AuditRow,
}

/// A place at which somebody waits. It goes with the last one.
struct QueueGuard<'a> {
    batched: &'a BatchedChanges,
    place: Place,
    queue: Arc<Queue>,
}

impl Store {
    /// Makes a change together with others that wait, if there are any.
    pub(super) async fn change_key_batched(&self, change: SingleChange) -> Result<Change, StoreError> {
        let guard = self.batched.enter((change.environment_id.clone(), change.audit.principal_id.clone()));
        let (made, mut answer) = oneshot::channel();
        lock(&guard.queue.waiting).push_back(Waiting { change, made });
        let until = Instant::now() + PATIENCE;
        loop {
            let _turn = tokio::select! {
                biased;
                // Without an answer, the task that made the call went away in the middle of it.
                made = &mut answer => return made.unwrap_or_else(|_| Err(unknown("the call was given up"))),
                turn = guard.queue.turn.lock() => turn,
                () = sleep_until(until) => return Err(unknown("the calls before this one take too long")),
            };
            let next = take(&mut lock(&guard.queue.waiting));
            // Callers without an answer in time learn that the outcome is unknown.
            let _ = timeout(TURN, self.change_all(next)).await;
        }
    }

    /// Makes changes in one call, and answers each.
    async fn change_all(&self, waiting: Vec<Waiting>) {
        let (changes, answers): (Vec<_>, Vec<_>) =
            waiting.into_iter().map(|Waiting { change, made }| (change, made)).unzip();
        if changes.len() > 1 {
            match self.change_in_one_call(&changes).await {
                Ok(made) => {
                    for (answer, made) in answers.into_iter().zip(made) {
                        // An error means that the caller hung up.
                        let _ = answer.send(Ok(made));
                    }
                    return;
                }
                Err(error) => {
                    let errors: Option<Vec<StoreError>> = answers.iter().map(|_| of_each(&error)).collect();
                    if let Some(errors) = errors {
                        for (answer, error) in answers.into_iter().zip(errors) {
                            let _ = answer.send(Err(error));
                        }
                        return;
                    }
                }
            }
        }
        for (change, answer) in changes.iter().zip(answers) {
            let alone = change.keys(vec![change.key()]);
            let _ = answer.send(self.change_alone(&alone).await);
        }
    }

    async fn change_in_one_call(&self, changes: &[SingleChange]) -> Result<Vec<Change>, StoreError> {
        let Some(first) = changes.first() else { return Ok(Vec::new()) };
        let mut keys = first.keys(changes.iter().map(SingleChange::key).collect());
        keys.workspace_id = changes.iter().find_map(|change| change.workspace_id.as_deref());
        let outcome = self.change_keys(&keys, &first.audit.authority).await?;
        self.trim_history_beyond(&first.environment_id, outcome.history).await;
        // The last one has the version that the environment has.
        let mut version = outcome.version;
        let mut made = Vec::with_capacity(changes.len());
        for created in outcome.created.into_iter().rev() {
            made.push(Change { version, created });
            version -= 1;
        }
        made.reverse();
        Ok(made)
    }
}

impl SingleChange {
    /// A copy of the only change; `None` if it cannot be made together with others.
    pub(super) fn of(change: &KeysChange<'_>) -> Option<Self> {
        let [key] = change.keys.as_slice() else { return None };
        let is_small = key.value.is_none_or(|value| value.ciphertext.len() <= SMALL);
        (is_small && key.audit.authority.is_decided()).then(|| Self {
            environment_id: change.environment_id.to_owned(),
            workspace_id: change.workspace_id.map(str::to_owned),
            key: key.key.to_owned(),
            value: key.value.cloned(),
            audit: key.audit.clone(),
        })
    }

    /// Is it by the same principal with the same rights as another one of the same environment?
    fn goes_with(&self, other: &Self) -> bool {
        let place = |row: &AuditRow| (row.user_id.clone(), row.workspace_id.clone(), row.project_id.clone());
        let (row, other) = (&self.audit, &other.audit);
        row.authority == other.authority
            && place(row) == place(other)
            && row.environment_id == other.environment_id
            && (row.resource_type, row.outcome) == (other.resource_type, other.outcome)
    }

    fn key(&self) -> KeyChange<'_> {
        KeyChange { key: &self.key, value: self.value.as_ref(), audit: &self.audit }
    }

    fn keys<'a>(&'a self, keys: Vec<KeyChange<'a>>) -> KeysChange<'a> {
        KeysChange {
            environment_id: &self.environment_id,
            workspace_id: self.workspace_id.as_deref(),
            keeps_former: true,
            keys,
        }
    }
}

impl BatchedChanges {
    /// How many changes wait for the next call.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.0).values().map(|queue| lock(&queue.waiting).len()).sum()
    }

    fn enter(&self, place: Place) -> QueueGuard<'_> {
        let queue = Arc::clone(lock(&self.0).entry(place.clone()).or_default());
        QueueGuard { batched: self, place, queue }
    }
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        let mut queues = lock(&self.batched.0);
        // Given back under the lock: of two who leave at once, one is the last.
        drop(std::mem::take(&mut self.queue));
        if queues.get(&self.place).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            queues.remove(&self.place);
        }
    }
}

/// The changes of the next call: the first that waits, and those right behind that go with it. Nothing is made for those who do not wait any more.
fn take(waiting: &mut VecDeque<Waiting>) -> Vec<Waiting> {
    let mut next: Vec<Waiting> = Vec::new();
    while next.len() < TOGETHER {
        let Some(one) = waiting.pop_front() else { break };
        if one.made.is_closed() {
            continue;
        }
        if next.first().is_some_and(|first| !one.change.goes_with(&first.change)) {
            waiting.push_front(one);
            break;
        }
        next.push(one);
    }
    next
}

/// The error of a call for one more of its changes; `None` if it is about one of them, so that the others can be made. Errors of the driver cannot be
/// copied, but their texts can.
fn of_each(error: &StoreError) -> Option<StoreError> {
    match error {
        StoreError::Duplicate
        | StoreError::Missing
        | StoreError::EnvironmentGone
        | StoreError::KeyTaken
        | StoreError::Revoked(_)
        | StoreError::RightsChanged
        | StoreError::Replayed
        | StoreError::Limit(_) => None,
        StoreError::Procedure { name, cause } => {
            Some(StoreError::Procedure { name: name.clone(), cause: cause.clone() })
        }
        StoreError::Corrupt(what) => Some(StoreError::Corrupt(what)),
        // Perhaps all of it happened.
        StoreError::Outage(cause) => Some(unknown(&cause.to_string())),
        // The database itself raises an error about the row of one change. All others are about the connection.
        StoreError::Database(cause) => {
            cause.as_database_error().is_none().then(|| StoreError::Database(sqlx::Error::Protocol(cause.to_string())))
        }
    }
}

/// The error for a change of which nobody knows whether it was made.
fn unknown(cause: &str) -> StoreError {
    StoreError::Outage(sqlx::Error::Io(std::io::Error::other(cause.to_owned())))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        audit::row::blank_row,
        limits::Reached,
        store::{Action, Authority},
    };

    fn waiting(principal_id: &str, key: &str) -> (Waiting, oneshot::Receiver<Result<Change, StoreError>>) {
        let audit = AuditRow {
            principal_id: principal_id.to_owned(),
            authority: Authority::of(principal_id, None),
            ..blank_row(Action::SecretDelete, "secret")
        };
        let (made, answer) = oneshot::channel();
        let change = SingleChange {
            environment_id: "e".to_owned(),
            workspace_id: None,
            key: key.to_owned(),
            value: None,
            audit,
        };
        (Waiting { change, made }, answer)
    }

    fn keys(taken: &[Waiting]) -> Vec<&str> {
        taken.iter().map(|waiting| waiting.change.key.as_str()).collect()
    }

    #[test]
    fn those_who_go_together_are_taken_in_their_order() {
        let (mut queue, mut answers) = (VecDeque::new(), Vec::new());
        for (principal_id, key) in [("p", "A"), ("p", "B"), ("p", "gone"), ("q", "C"), ("p", "D")] {
            let (waiting, answer) = waiting(principal_id, key);
            queue.push_back(waiting);
            if key != "gone" {
                answers.push(answer);
            }
        }
        assert_eq!(keys(&take(&mut queue)), ["A", "B"]);
        assert_eq!(keys(&take(&mut queue)), ["C"]);
        assert_eq!(keys(&take(&mut queue)), ["D"]);
        assert!(take(&mut queue).is_empty());
    }

    #[test]
    fn only_an_error_about_one_change_leaves_the_others_to_be_made() {
        let lost = sqlx::Error::PoolTimedOut;
        let failed = |error: sqlx::Error| StoreError::Database(error);
        for error in [
            StoreError::Outage(lost),
            failed(sqlx::Error::Protocol("a column is gone".to_owned())),
            StoreError::Corrupt("level"),
            StoreError::Procedure { name: "p".to_owned(), cause: "c".to_owned() },
        ] {
            let copy = of_each(&error).expect("it is that of all");
            assert_eq!(
                (copy.to_string(), std::mem::discriminant(&copy)),
                (error.to_string(), std::mem::discriminant(&error))
            );
        }
        let limit = Reached { what: "keys", limit: 1, flag: "--max-environment-keys" };
        for error in [
            StoreError::RightsChanged,
            StoreError::Missing,
            StoreError::EnvironmentGone,
            StoreError::Replayed,
            StoreError::Limit(limit),
        ] {
            assert!(of_each(&error).is_none(), "{error}");
        }
    }

    #[test]
    fn a_call_has_an_end() {
        let (mut queue, answers): (VecDeque<_>, Vec<_>) =
            (0..TOGETHER + 3).map(|number| waiting("p", &number.to_string())).unzip();
        assert_eq!(take(&mut queue).len(), TOGETHER);
        assert_eq!(take(&mut queue).len(), 3);
        drop(answers);
    }

    #[test]
    fn a_place_goes_with_the_last_who_waits_there() {
        let batched = BatchedChanges::default();
        let place = || ("e".to_owned(), "p".to_owned());
        let (first, second) = (batched.enter(place()), batched.enter(place()));
        assert!(Arc::ptr_eq(&first.queue, &second.queue));
        drop(first);
        assert_eq!(lock(&batched.0).len(), 1);
        drop(second);
        assert!(lock(&batched.0).is_empty());
    }
}

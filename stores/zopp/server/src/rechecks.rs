//! Whether watches may go on: one question to the database serves all watches of a principal on an environment.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::time::Instant;
use tonic::Status;

use crate::{
    metrics::Metrics,
    place::{admitted, locate},
    rbac::Role,
    store::{PrincipalRow, Store},
};

/// The principal, and the names of the workspace, the project and the environment.
type Key = (String, [String; 3]);

/// The questions of all open watches. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Rechecks {
    store: Store,
    metrics: Metrics,
    period: Duration,
    questions: Arc<Mutex<HashMap<Arc<Key>, Weak<Question>>>>,
}

/// May this principal still read this environment? Gone with the last watch that asks it.
#[derive(Debug)]
pub(crate) struct Question {
    rechecks: Rechecks,
    principal: PrincipalRow,
    key: Arc<Key>,
    /// When the answer was asked for, and what it was. Locked while one watch asks for all of them.
    last_answer: tokio::sync::Mutex<Option<(Instant, Result<ReadableEnvironment, Status>)>>,
    due: Mutex<Instant>,
}

/// The environment that the principal may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadableEnvironment {
    /// Its id, which is another one if it was made anew.
    pub environment_id: String,
    /// Its version.
    pub version: i64,
}

impl Rechecks {
    /// Nobody watches yet. Idle watches ask once in each `period`.
    pub(crate) fn new(store: Store, metrics: Metrics, period: Duration) -> Self {
        Self { store, metrics, period, questions: Arc::default() }
    }

    /// The question of a watch that was answered right now.
    pub(crate) fn question(&self, principal: &PrincipalRow, names: [&String; 3]) -> Arc<Question> {
        let key = (principal.id.clone(), names.map(String::clone));
        let mut questions = self.lock();
        if let Some(question) = questions.get(&key).and_then(Weak::upgrade) {
            return question;
        }
        let key = Arc::new(key);
        let question = Arc::new(Question {
            rechecks: self.clone(),
            principal: principal.clone(),
            key: Arc::clone(&key),
            last_answer: tokio::sync::Mutex::default(),
            due: Mutex::new(Instant::now() + self.period),
        });
        questions.insert(key, Arc::downgrade(&question));
        question
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<Key>, Weak<Question>>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    /// When it is to be asked again, if nothing happens before.
    pub(crate) fn due(&self) -> Instant {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to the question as it was put at this moment or later.
    pub(crate) async fn answer(&self, since: Instant) -> Result<ReadableEnvironment, Status> {
        let mut last_answer = self.last_answer.lock().await;
        if let Some((at, answer)) = &*last_answer
            && *at >= since
        {
            return answer.clone();
        }
        let at = Instant::now();
        let answer = self.ask().await;
        *last_answer = Some((at, answer.clone()));
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = at + self.rechecks.period;
        answer
    }

    async fn ask(&self) -> Result<ReadableEnvironment, Status> {
        self.rechecks.metrics.watch_rechecked();
        let (_, names) = &*self.key;
        let names = names.each_ref().map(String::as_str);
        let located = locate(&self.rechecks.store, &self.principal, names).await?;
        let (_, environment) = admitted(located, names, Role::Read)?;
        Ok(ReadableEnvironment { environment_id: environment.id, version: environment.version })
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let mut questions = self.rechecks.lock();
        // Another one may have taken its place since its last watch ended.
        if questions.get(&self.key).is_some_and(|question| question.strong_count() == 0) {
            questions.remove(&self.key);
        }
    }
}

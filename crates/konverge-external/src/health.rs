//! Whether a source answers.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{ChangeKind, Metrics};

/// How a watched source is doing. Clones are handles to the same state.
///
/// Ready once a poll has succeeded. Unready while polls fail and the last success is too long ago, and after the watch
/// has ended. A source that has nothing to say is not unready for it.
#[derive(Clone)]
pub struct Health(Arc<Shared>);

struct Shared {
    name: String,
    stale_after: Duration,
    metrics: Metrics,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_success: Option<Instant>,
    /// In a row, and the text of the last one.
    failures: u32,
    last_error: String,
    ended: bool,
}

impl Health {
    pub(crate) fn new(name: &str, stale_after: Duration, metrics: Metrics) -> Self {
        Self(Arc::new(Shared { name: name.to_owned(), stale_after, metrics, state: Mutex::default() }))
    }

    /// The source's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether the source answers, and if not, why.
    pub fn ready(&self) -> Result<(), String> {
        let state = self.state();
        if state.ended {
            return Err("the watch has ended".to_owned());
        }
        let error = if state.last_error.is_empty() { "none has ended yet" } else { state.last_error.as_str() };
        match state.last_success.map(|last| last.elapsed()) {
            None => Err(format!("no poll has succeeded yet: {error}")),
            Some(age) if state.failures > 0 && age > self.0.stale_after => Err(format!(
                "the last of {} failed polls: {error}; the last success was {} s ago",
                state.failures,
                age.as_secs()
            )),
            Some(_) => Ok(()),
        }
    }

    /// [`Health::ready`] as a check, for a program with a list of readiness checks.
    pub fn readiness(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static {
        let this = self.clone();
        move || this.ready()
    }

    /// How long ago the last success was; nothing before the first.
    pub fn last_success(&self) -> Option<Duration> {
        self.state().last_success.map(|last| last.elapsed())
    }

    /// Failed polls since the last success.
    pub fn failures(&self) -> u32 {
        self.state().failures
    }

    /// Returns the error of the last poll, or of its failed part; `None` after a success.
    pub fn last_error(&self) -> Option<String> {
        Some(self.state().last_error.clone()).filter(|error| !error.is_empty())
    }

    pub(crate) fn changed(&self, kind: ChangeKind) {
        self.0.metrics.changed(&self.0.name, kind);
    }

    pub(crate) fn succeeded(&self, took: Duration) {
        let mut state = self.state();
        state.last_success = Some(Instant::now());
        state.failures = 0;
        state.last_error.clear();
        drop(state);
        self.0.metrics.succeeded(&self.0.name, took);
    }

    pub(crate) fn failed(&self, reason: &'static str, text: String, took: Duration) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        state.last_error = text;
        drop(state);
        self.0.metrics.failed(&self.0.name, reason, took);
    }

    pub(crate) fn partly_failed(&self, reason: &'static str, text: String) {
        self.state().last_error = text;
        self.0.metrics.fault(&self.0.name, reason);
    }

    pub(crate) fn not_saved(&self, reason: &'static str) {
        self.0.metrics.fault(&self.0.name, reason);
    }

    pub(crate) fn ended(&self) {
        self.state().ended = true;
    }

    /// No code that could panic runs under this lock, and none waits.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

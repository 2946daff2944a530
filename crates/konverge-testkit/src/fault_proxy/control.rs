//! The switches of a test while requests are under way.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    decide::{Decision, Moment, PlanState},
    plan::{Action, Plan, PlanError},
};

type Killer = Arc<dyn Fn() + Send + Sync>;

/// When the connections of a time freeze, and when they end.
#[derive(Clone, Default)]
pub(super) struct Freeze {
    pub(super) begun: CancellationToken,
    pub(super) over: CancellationToken,
}

/// The plan in force, and what it has set in motion.
#[derive(Default)]
pub(super) struct Control {
    plan: Mutex<PlanState>,
    /// Counts releases.
    releases: watch::Sender<u64>,
    down_until: Mutex<Option<Instant>>,
    /// Cancelled, and replaced, to end all connections that there are.
    connections: Mutex<CancellationToken>,
    /// Of the connections that are not frozen; replaced when they are.
    freeze: Mutex<Freeze>,
    /// Of the connections that are frozen.
    frozen: Mutex<Vec<Freeze>>,
    killers: Mutex<BTreeMap<String, Killer>>,
}

impl Control {
    pub(super) fn decide(&self, moment: Moment<'_>) -> Vec<Decision> {
        lock(&self.plan).decide(moment)
    }

    pub(super) fn fired(&self) -> Vec<u64> {
        lock(&self.plan).fired()
    }

    pub(super) fn set(&self, plan: Plan) -> Result<(), PlanError> {
        let known: Vec<String> = lock(&self.killers).keys().cloned().collect();
        for (index, rule) in plan.rules.iter().enumerate() {
            if let Action::Kill(process) = rule.then()
                && !known.contains(process)
            {
                return Err(PlanError::UnknownProcess { rule: index + 1, process: process.clone(), known });
            }
        }
        // Requests that the old plan held must not wait for ever.
        *lock(&self.plan) = PlanState::new(plan);
        self.releases.send_modify(|count| *count += 1);
        self.end_frozen();
        Ok(())
    }

    pub(super) fn release(&self) {
        // First the rules, so that nothing is held between the two.
        lock(&self.plan).release();
        self.releases.send_modify(|count| *count += 1);
        self.end_frozen();
    }

    /// Hears releases that come after it was made.
    pub(super) fn releases(&self) -> watch::Receiver<u64> {
        self.releases.subscribe()
    }

    pub(super) fn go_down(&self, length: Duration) {
        *lock(&self.down_until) = Some(Instant::now() + length);
        self.end_connections();
    }

    pub(super) fn come_up(&self) {
        *lock(&self.down_until) = None;
    }

    pub(super) fn is_down(&self) -> bool {
        lock(&self.down_until).is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn end_connections(&self) {
        std::mem::take(&mut *lock(&self.connections)).cancel();
    }

    /// Cancelled when the connections of now have to end.
    pub(super) fn connection(&self) -> CancellationToken {
        lock(&self.connections).clone()
    }

    pub(super) fn freeze_connections(&self) {
        let freeze = std::mem::take(&mut *lock(&self.freeze));
        freeze.begun.cancel();
        lock(&self.frozen).push(freeze);
    }

    /// When the connections of now freeze.
    pub(super) fn freeze(&self) -> Freeze {
        lock(&self.freeze).clone()
    }

    fn end_frozen(&self) {
        lock(&self.frozen).drain(..).for_each(|freeze| freeze.over.cancel());
    }

    pub(super) fn on_kill(&self, process: String, kill: impl Fn() + Send + Sync + 'static) {
        lock(&self.killers).insert(process, Arc::new(kill));
    }

    /// Kills the process, and returns when it is dead.
    pub(super) async fn kill(&self, process: &str) {
        let killer = lock(&self.killers).get(process).cloned();
        if let Some(killer) = killer {
            // It waits for the end of the process. A panic in it has said what is wrong.
            let _ = tokio::task::spawn_blocking(move || killer()).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

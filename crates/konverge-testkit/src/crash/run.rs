//! One run of a scenario: a namespace, a proxy with a plan, an operator that is started again when the plan has killed it.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use kube::Client;
use tokio::time::{Instant, sleep};

use super::{CrashError, CrashTest, OPERATOR, Outcome, Scenario};
use crate::{
    control_plane::client_for,
    fault_proxy::{FaultProxy, JournalEntry, Plan, Trigger},
    logs,
    process::Process,
    wait::pause,
};

/// Why a run does not go on.
pub(super) enum Trouble {
    /// The operator's fault.
    Operator(String),
    /// Not the operator's fault.
    Test(CrashError),
}

pub(super) struct Run<'a, S> {
    test: &'a CrashTest<'a, S>,
    proxy: FaultProxy,
    client: Client,
    namespace: String,
    writes: Trigger,
    operator: Operator,
    rules: usize,
}

/// The operator's process, and what is known of its end.
#[derive(Clone)]
struct Operator {
    process: Arc<Mutex<Option<Process>>>,
    killed: Arc<AtomicBool>,
}

/// The operator's activity so far. While it changes, the operator is not done.
#[derive(PartialEq, Eq)]
struct Activity {
    writes: usize,
    starts: usize,
    awake: bool,
}

impl<'a, S: Scenario> Run<'a, S> {
    pub(super) async fn start(test: &'a CrashTest<'a, S>, plan: Plan) -> Result<Self, CrashError> {
        let (scenario, control_plane) = (test.scenario, test.control_plane);
        let namespace = control_plane.namespace(scenario.name()).await?;
        let prepared = scenario.prepare(control_plane, &namespace).await;
        let identity = prepared.map_err(|source| CrashError::Scenario { what: "prepare the namespace", source })?;
        let proxy = FaultProxy::start(control_plane.run_directory(), &identity).await?;
        let operator = Operator { process: Arc::default(), killed: Arc::default() };
        let killed = operator.clone();
        proxy.on_kill(OPERATOR, move || killed.kill());
        let rules = plan.rules.len();
        proxy.set(plan)?;
        let mut spec = scenario.operator(proxy.kubeconfig(), &namespace);
        // One log for each run.
        spec.name = format!("{}-{namespace}", spec.name);
        let process = Process::start(control_plane.run_directory(), spec)?;
        *operator.lock() = Some(process);
        let client = client_for(control_plane.kubeconfig()).await?;
        Ok(Self { test, proxy, client, namespace, writes: scenario.writes(), operator, rules })
    }

    /// Changes the world and waits until the operator has followed and is quiet.
    pub(super) async fn step(&mut self, step: usize) -> Result<(), Trouble> {
        let scenario = self.test.scenario;
        let failed = |what| move |source| Trouble::Test(CrashError::Scenario { what, source });
        scenario.change(step, &self.client, &self.namespace).await.map_err(failed("change the world"))?;
        let begun = Instant::now();
        let (mut starts, mut heard_at_start) = (0, None);
        let (mut seen, mut since) = (Activity { writes: 0, starts: 0, awake: false }, begun);
        loop {
            if self.operator.start_again().map_err(Trouble::Operator)? {
                starts += 1;
                heard_at_start = Some(self.proxy.journal().len());
            }
            let journal = self.proxy.journal();
            let now = Activity {
                writes: self.counted(&journal).len(),
                starts,
                // A restarted operator counts as idle only after it has looked at its objects.
                awake: heard_at_start.is_none_or(|before| journal.len() > before),
            };
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            let converged = scenario.is_converged(step, &self.client, &self.namespace).await;
            let converged = converged.map_err(failed("tell whether it converged"))?;
            if converged && seen.awake && since.elapsed() >= self.test.quiet {
                return Ok(());
            }
            if begun.elapsed() >= self.test.limit {
                let state = if converged { "was not quiet" } else { "did not converge" };
                let (limit, log) = (self.test.limit.as_secs_f32(), self.operator.log_tail());
                return Err(Trouble::Operator(format!("it {state} within {limit} s after step {step}:\n{log}")));
            }
            sleep(pause(begun.elapsed())).await;
        }
    }

    /// Ends the run and tells how it went.
    pub(super) async fn end(self) -> Result<Outcome, CrashError> {
        let end_state = self.test.scenario.end_state(&self.client, &self.namespace).await;
        let end_state = end_state.map_err(|source| CrashError::Scenario { what: "tell the end state", source })?;
        *self.operator.lock() = None;
        let fired = self.proxy.fired();
        let fault_injected = fired.len() == self.rules && fired.iter().all(|count| *count > 0);
        Ok(Outcome::new(end_state, &self.counted(&self.proxy.journal()), fault_injected))
    }

    /// The writes that count.
    fn counted(&self, journal: &[JournalEntry]) -> Vec<JournalEntry> {
        journal.iter().filter(|entry| self.writes.names(&entry.request)).cloned().collect()
    }
}

impl Operator {
    fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        if let Some(process) = self.lock().as_mut() {
            process.kill();
        }
    }

    /// Starts it again if the plan has killed it, as Kubernetes would. That it ends of itself is an error.
    fn start_again(&self) -> Result<bool, String> {
        let mut process = self.lock();
        let Some(process) = process.as_mut() else { return Ok(false) };
        if let Some(status) = process.status() {
            return Err(format!("it ended by itself ({status}):\n{}", logs::tail(&process.log())));
        }
        if process.pid().is_some() || !self.killed.swap(false, Ordering::AcqRel) {
            return Ok(false);
        }
        process.start_again().map_err(|error| error.to_string())?;
        Ok(true)
    }

    fn log_tail(&self) -> String {
        self.lock().as_ref().map(|process| logs::tail(&process.log())).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The parts of a program: tasks, controllers, checks, metrics, and one way to start and to stop.
//!
//! Starting: the addresses are bound first ([`Manager::bind`], [`Manager::metrics_server`]). Then the HTTP servers and the tasks
//! run (watches, hubs, events). The controllers and the leader's tasks are last; with a lease, they start only once it is held. A
//! standby runs all but those, so its caches are warm.
//!
//! Stopping, on SIGTERM, SIGINT, [`Manager::shutdown`] or a failure: readiness fails, the queues close, and runs in flight end. Then the tasks are told to stop, and end. The lease
//! is released after that. The servers that others call end next ([`Manager::server_task`]), and the server for health last. All of it within the grace period, after which what is
//! left is dropped. A second signal drops everything at once. The work registered with [`on_shutdown`](Manager::on_shutdown) is done in any case.
//!
//! Several such programs are one process [`ManagerGroup`].

mod error;
#[cfg(feature = "serve")]
mod group;
mod running;
#[cfg_attr(not(feature = "serve"), path = "manager/no_servers.rs")]
mod servers;
#[cfg(feature = "serve")]
mod serving;
mod signals;

use std::{borrow::Cow, panic::AssertUnwindSafe, pin::Pin, time::Duration};

use futures::FutureExt;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    checks::{Checks, Flag},
    controller::{Controller, Reconciler, panic_text},
    lease::{Elector, Leadership},
    metrics::Metrics,
};

pub use error::RunError;
#[cfg(feature = "serve")]
pub use group::ManagerGroup;
use running::Running;
use servers::Servers;
pub use signals::Signals;

type BoxedTask = Pin<Box<dyn Future<Output = Result<(), RunError>> + Send>>;

/// The timeout of the work after all tasks have ended. It is part of the pod's grace period.
const ON_SHUTDOWN_WITHIN: Duration = Duration::from_secs(5);

/// The work that is done when all else has ended.
type LastTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A program that is being put together, and then runs.
pub struct Manager {
    servers: Servers,
    checks: Checks,
    metrics: Metrics,
    up: Flag,
    grace: Duration,
    shutdown: CancellationToken,
    /// Cancelled once the controllers have ended.
    stop_tasks: CancellationToken,
    tasks: Tasks,
    controllers: Vec<ControllerTask>,
    electors: Electors,
    on_shutdown: Vec<LastTask>,
}

/// The tasks of a program, by the replicas that run them and by what they wait for at the end.
#[derive(Default)]
struct Tasks {
    /// They run from start to stop.
    all_along: Vec<BoxedTask>,
    /// The servers that others call.
    servers: Vec<BoxedTask>,
    /// They wait for the lease.
    leader: Vec<BoxedTask>,
}

/// The electors of a program.
#[derive(Default)]
struct Electors {
    program: Option<Elector>,
    /// Those of controllers with a lease of their own.
    controllers: Vec<Elector>,
}

impl Electors {
    /// Keeps all leases until told to stop.
    fn run(self, stop: &CancellationToken) -> JoinSet<Result<(), RunError>> {
        let mut leases = JoinSet::new();
        for elector in self.controllers.into_iter().chain(self.program) {
            let until = stop.clone();
            let kept = async move { elector.run(until).await.map_err(RunError::LeaseLost) };
            leases.spawn(kept.in_current_span());
        }
        leases
    }
}

struct ControllerTask {
    run: BoxedTask,
    close: Box<dyn FnOnce() + Send>,
    /// Its own, if it has its own lease.
    leadership: Option<Leadership>,
}

impl Manager {
    /// A program that serves nothing over HTTP: neither health nor metrics.
    pub fn new(metrics: Metrics) -> Self {
        let checks = Checks::default();
        metrics.follow(&checks);
        let up = checks.readiness_flag("shutdown", "shutting down");
        Self {
            servers: Servers::default(),
            checks,
            metrics,
            up,
            grace: Duration::from_secs(30),
            shutdown: CancellationToken::new(),
            stop_tasks: CancellationToken::new(),
            tasks: Tasks::default(),
            controllers: Vec::new(),
            electors: Electors::default(),
            on_shutdown: Vec::new(),
        }
    }

    /// Sets how long stopping may take. The default is 30 seconds.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Lets the controllers run only while this elector leads. Losing the lease ends the program.
    #[must_use]
    pub fn leader_election(mut self, elector: Elector) -> Self {
        self.electors.program = Some(elector.metrics(self.metrics.leases()));
        self
    }

    /// The checks behind `/healthz` and `/readyz`.
    pub fn checks(&self) -> &Checks {
        &self.checks
    }

    /// The series behind `/metrics`.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Cancelling it begins the shutdown, as a signal does; it is cancelled when the shutdown begins for another reason.
    pub fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Cancelled when tasks are to stop: after the controllers' last runs, which may need them.
    pub fn stop_tasks(&self) -> CancellationToken {
        self.stop_tasks.clone()
    }

    /// Runs `task` from start to stop and drops it then. A task that ends before is an error of the program.
    pub fn task(&mut self, name: impl Into<Cow<'static, str>>, task: impl Future<Output = ()> + Send + 'static) {
        let task = until_stopped(self.stop_tasks.clone(), task);
        self.stopping_task(name, task);
    }

    /// Like [`task`](Self::task), for one that looks at [`stop_tasks`](Self::stop_tasks) itself and has something to finish.
    pub fn stopping_task(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let stop = self.stop_tasks.clone();
        self.tasks.all_along.push(Box::pin(guarded(name.into(), stop, task)));
    }

    /// Like [`stopping_task`](Self::stopping_task), for a server that others call, such as one of webhooks. It runs on standbys too. The
    /// program waits for it after the lease has been released: its callers may take some seconds to find another replica, and the next
    /// leader must not wait for them.
    pub fn server_task(&mut self, name: impl Into<Cow<'static, str>>, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop_tasks.clone();
        self.tasks.servers.push(Box::pin(guarded(name.into(), stop, task)));
    }

    /// Like [`task`](Self::task), for what only one replica may do: it begins once we lead, as controllers do, or at once where there is no
    /// election. A lease that is lost drops it where it is; told to stop, it is dropped while we still lead.
    pub fn leader_task(&mut self, name: impl Into<Cow<'static, str>>, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop_tasks.clone();
        let task = until_stopped(stop.clone(), task);
        self.tasks.leader.push(Box::pin(guarded(name.into(), stop, task)));
    }

    /// Runs a controller, with a lease only while leading. A worker that is stuck fails the liveness check of that name.
    pub fn controller<R: Reconciler>(&mut self, name: impl Into<Cow<'static, str>>, controller: Controller<R>) {
        let name = name.into();
        let queue = controller.queue().clone();
        let stop = self.shutdown.clone();
        self.checks.liveness(name.clone(), controller.watchdog());
        self.controllers.push(ControllerTask {
            run: Box::pin(guarded(name, stop, controller.run())),
            close: Box::new(move || queue.close()),
            leadership: None,
        });
    }

    /// Runs a controller only while `elector` leads, whether the program leads or not. Losing that lease ends the program.
    pub fn controller_with_lease<R: Reconciler>(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        controller: Controller<R>,
        elector: Elector,
    ) {
        self.controller(name, controller);
        if let Some(task) = self.controllers.last_mut() {
            task.leadership = Some(elector.leadership());
        }
        self.electors.controllers.push(elector.metrics(self.metrics.leases()));
    }

    /// Ends the program with [`RunError::NotSynced`] unless `synced` ends within `limit`; `missing` then says what is missing and why.
    pub fn require_within(
        &mut self,
        limit: Duration,
        synced: impl Future<Output = ()> + Send + 'static,
        missing: impl FnOnce() -> String + Send + 'static,
    ) {
        let stop = self.stop_tasks.clone();
        self.tasks.all_along.push(Box::pin(async move {
            match stop.run_until_cancelled(timeout(limit, synced)).await {
                Some(Err(_elapsed)) => Err(RunError::NotSynced { limit, missing: missing() }),
                Some(Ok(())) | None => Ok(()),
            }
        }));
    }

    /// Does this when all else has ended, however it ended: for what is needed until then and not to be left behind, such as a login.
    /// It is dropped after five seconds.
    pub fn on_shutdown(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.on_shutdown.push(Box::pin(timeout(ON_SHUTDOWN_WITHIN, task).map(drop)));
    }

    /// Runs the program until a signal stops it or a task fails. Signals do not interrupt the work before this call; see [`Signals`].
    pub async fn run(self) -> Result<(), RunError> {
        self.run_with(Signals::catch()?).await
    }

    /// Like [`run`](Self::run), but with signals that were caught earlier. A signal since then stops the program right after its start.
    pub async fn run_with(mut self, signals: Signals) -> Result<(), RunError> {
        let on_shutdown = std::mem::take(&mut self.on_shutdown);
        let shutdown = self.shutdown.clone();
        let ended = signals.shut_down(&shutdown, self.run_until_shutdown()).await;
        for task in on_shutdown {
            task.await;
        }
        ended
    }

    async fn run_until_shutdown(self) -> Result<(), RunError> {
        let mut running = self.start();
        let failed = running.until_stopped().await;
        running.stop(failed).await
    }

    /// Starts all parts. With a lease, the controllers and the leader's tasks wait for it.
    fn start(self) -> Running {
        let Self {
            servers,
            checks,
            metrics,
            up,
            grace,
            shutdown,
            stop_tasks,
            tasks,
            controllers,
            electors,
            on_shutdown: _,
        } = self;
        let stop_lease = CancellationToken::new();
        let stop_server = CancellationToken::new();

        let services = servers.serve(checks, metrics).into_iter().map(|server| {
            let stop = stop_server.clone();
            guarded("http server".into(), stop.clone(), until_stopped(stop, server))
        });
        // Their log lines say of which job they are, where there are several.
        let services: JoinSet<_> = services.map(Instrument::in_current_span).collect();
        let Tasks { all_along, servers, leader } = tasks;
        let mut tasks: JoinSet<_> = all_along.into_iter().map(Instrument::in_current_span).collect();
        let server_tasks: JoinSet<_> = servers.into_iter().map(Instrument::in_current_span).collect();
        let leadership = electors.program.as_ref().map(Elector::leadership);
        let lease = electors.run(&stop_lease);
        let (mut workers, mut closers) = (JoinSet::new(), Vec::new());
        for ControllerTask { run, close, leadership: own } in controllers {
            closers.push(close);
            workers.spawn(gated(own.or_else(|| leadership.clone()), shutdown.clone(), run).in_current_span());
        }
        for task in leader {
            tasks.spawn(gated(leadership.clone(), shutdown.clone(), task).in_current_span());
        }
        up.set(true);
        Running {
            up,
            grace,
            shutdown,
            closers,
            workers,
            stop_tasks,
            tasks,
            stop_lease,
            lease,
            server_tasks,
            stop_server,
            services,
        }
    }
}

/// Runs a controller or a task from when we lead, or at once where there is no election; not at all if the shutdown comes first.
async fn gated(leadership: Option<Leadership>, shutdown: CancellationToken, run: BoxedTask) -> Result<(), RunError> {
    if let Some(mut leadership) = leadership
        && shutdown.run_until_cancelled(leadership.acquired()).await.is_none()
    {
        return Ok(());
    }
    run.await
}

/// Runs a task and drops it when told to stop. Boxes it, as [`guarded`] does.
fn until_stopped(stop: CancellationToken, task: impl Future<Output = ()> + Send) -> impl Future<Output = ()> + Send {
    let task = Box::pin(task);
    async move {
        stop.run_until_cancelled(task).await;
    }
}

/// Makes an error of a task that panics, and of one that ends before it should.
///
/// Boxes the task before the `async` block takes it: an `async` function that takes a future and awaits it has room for it twice.
fn guarded(
    name: Cow<'static, str>,
    stop: CancellationToken,
    task: impl Future<Output = ()> + Send,
) -> impl Future<Output = Result<(), RunError>> + Send {
    let task = Box::pin(task);
    async move {
        match AssertUnwindSafe(task).catch_unwind().await {
            Ok(()) if stop.is_cancelled() => Ok(()),
            Ok(()) => Err(RunError::TaskEnded { name }),
            Err(panic) => Err(RunError::TaskPanicked { name, message: panic_text(&*panic).to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests;

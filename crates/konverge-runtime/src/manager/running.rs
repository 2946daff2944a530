//! A program that runs, and the order in which its parts end.

use std::time::Duration;

use konverge_core::error::in_one_line;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::error::RunError;
use crate::checks::Flag;

/// The part of the grace period that runs in flight may use up; the rest is for the tasks that finish after them.
const WORKERS_SHARE: f64 = 0.8;

type Tasks = JoinSet<Result<(), RunError>>;

/// A program that runs. Its parts stand in the order in which they end.
pub(super) struct Running {
    pub(super) up: Flag,
    pub(super) grace: Duration,
    pub(super) shutdown: CancellationToken,
    /// They close the queues of the workers.
    pub(super) closers: Vec<Box<dyn FnOnce() + Send>>,
    pub(super) workers: Tasks,
    pub(super) stop_tasks: CancellationToken,
    pub(super) tasks: Tasks,
    pub(super) stop_lease: CancellationToken,
    pub(super) lease: Tasks,
    /// The servers that others call.
    pub(super) server_tasks: Tasks,
    pub(super) stop_server: CancellationToken,
    pub(super) services: Tasks,
}

impl Running {
    /// Waits for the shutdown or for the first failure, and then lets nothing new begin. Returns the failure.
    pub(super) async fn until_stopped(&mut self) -> Option<RunError> {
        let failed = tokio::select! {
            () = self.shutdown.cancelled() => None,
            error = first_failure(&mut self.workers) => Some(error),
            error = first_failure(&mut self.tasks) => Some(error),
            error = first_failure(&mut self.server_tasks) => Some(error),
            error = first_failure(&mut self.services) => Some(error),
            error = first_failure(&mut self.lease) => Some(error),
        };
        self.up.set(false);
        self.shutdown.cancel();
        for close in self.closers.drain(..) {
            close();
        }
        failed
    }

    /// Ends all parts within the grace period, each after those that need it. A lost lease drops everything at once.
    pub(super) async fn stop(self, failed: Option<RunError>) -> Result<(), RunError> {
        let Self {
            grace,
            mut workers,
            stop_tasks,
            mut tasks,
            stop_lease,
            mut lease,
            mut server_tasks,
            stop_server,
            services: _services,
            ..
        } = self;
        if let Some(error @ RunError::LeaseLost(_)) = failed {
            // Somebody else may be leading already: what is in flight must not go on.
            return Err(error);
        }
        let begun = Instant::now();
        let drained = async {
            let workers_ended = drain(&mut workers, begun + grace.mul_f64(WORKERS_SHARE)).await;
            // Dropping is quick unless a run computes without an end, which must not hold up the rest.
            let _ = timeout_at(Instant::now() + Duration::from_secs(1), workers.shutdown()).await;
            stop_tasks.cancel();
            let tasks_ended = drain(&mut tasks, begun + grace).await;
            workers_ended && tasks_ended
        };
        let ended_in_time = tokio::select! {
            ended_in_time = drained => ended_in_time,
            // The remaining work must not go on if the lease is lost only now.
            error = first_failure(&mut lease) => return Err(error),
        };
        stop_lease.cancel();
        // Releasing has a limit of its own and is worth waiting for: otherwise the next leader waits for the lease to expire.
        while lease.join_next().await.is_some() {}
        let ended_in_time = drain(&mut server_tasks, begun + grace).await && ended_in_time;
        stop_server.cancel();
        match failed {
            Some(error) => Err(error),
            None if ended_in_time => Ok(()),
            None => Err(RunError::NotInTime { grace }),
        }
    }
}

/// Waits for the first task that fails; for ever if none does.
pub(super) async fn first_failure(tasks: &mut Tasks) -> RunError {
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error,
            Err(error) => return RunError::TaskPanicked { name: "task".into(), message: error.to_string() },
        }
    }
    std::future::pending().await
}

/// Waits for all tasks; whether they ended before the deadline.
async fn drain(tasks: &mut Tasks, deadline: Instant) -> bool {
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            // A task that ends now, such as one that nobody sends anything any more, does what is wanted.
            if let Ok(Err(error)) = ended
                && !matches!(error, RunError::TaskEnded { .. })
            {
                tracing::warn!(error = %in_one_line(&error), "failed while shutting down");
            }
        }
    };
    timeout_at(deadline, all).await.is_ok()
}

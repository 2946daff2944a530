//! Several programs as one process.
//!
//! Each stays the [`Manager`] that it is: with its own lease, its own series and its own order of ending. They share the process: the two signals,
//! the log, and one address.
//!
//! | Page | Says |
//! |---|---|
//! | `/healthz`, `/readyz` | the checks of all, each as `job/check` |
//! | `/metrics/job` | the series of one job; they are not mixed, because several have equal ones |
//! | `/debug/log` | the log filter of the process |
//!
//! Guarantee: when one ends, or is only told to, all are, each in its order and within its grace period. Then the process ends, with the
//! first failure if there was one.

use std::{collections::BTreeMap, net::SocketAddr};

use futures::future::{join_all, select_all};
use konverge_core::error::in_one_line;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{LastTask, Manager, RunError, Signals, guarded, running::first_failure, until_stopped};
use crate::{
    checks::Checks,
    http_server::{BindError, HttpServer, Listen, MetricsPage},
    telemetry::{JOB, LogFilter},
};

/// A process of several jobs that is being put together, and then runs.
pub struct ManagerGroup {
    server: HttpServer,
    checks: Checks,
    pages: BTreeMap<String, MetricsPage>,
    jobs: Vec<(String, Manager)>,
    on_shutdown: Vec<LastTask>,
}

impl ManagerGroup {
    /// Takes the address for all of them, before anything else is tried.
    pub async fn listen(listen: Listen) -> Result<Self, BindError> {
        Ok(Self {
            server: HttpServer::bind(listen).await?,
            checks: Checks::default(),
            pages: BTreeMap::new(),
            jobs: Vec::new(),
            on_shutdown: Vec::new(),
        })
    }

    /// Where it listens; port 0 says nowhere.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Adds a job under a name of its own. Its own servers stay as configured. If it serves no metrics itself, they are served here, with the same
    /// authentication.
    pub fn job(&mut self, name: impl Into<String>, mut manager: Manager) {
        let name = name.into();
        self.checks.include(name.clone(), &manager.checks);
        self.on_shutdown.append(&mut manager.on_shutdown);
        if let Some(page) = manager.servers.unserved(&manager.metrics) {
            self.pages.insert(name.clone(), page);
        }
        self.jobs.push((name, manager));
    }

    /// Lets the log filter be read and changed at `/debug/log`, as [`Manager::log_filter`] does.
    pub fn log_filter(&mut self, filter: LogFilter) {
        self.server.log_filter(filter);
    }

    /// Runs all jobs until they are told to stop or one of them ends.
    pub async fn run(self) -> Result<(), RunError> {
        self.run_with(Signals::catch()?).await
    }

    /// Like [`run`](Self::run), but with signals that were caught earlier. A signal since then stops the jobs right after their start.
    pub async fn run_with(self, signals: Signals) -> Result<(), RunError> {
        let Self { server, checks, pages, jobs, on_shutdown } = self;
        let shutdown = CancellationToken::new();
        let stop_server = CancellationToken::new();
        let serve = until_stopped(stop_server.clone(), server.serve_jobs(checks, pages));
        let mut service = JoinSet::new();
        service.spawn(guarded("http server".into(), stop_server.clone(), serve));
        let ended = signals.shut_down(&shutdown, run_jobs(jobs, &shutdown, &mut service)).await;
        join_all(on_shutdown).await;
        stop_server.cancel();
        service.shutdown().await;
        ended
    }
}

async fn run_jobs(
    jobs: Vec<(String, Manager)>,
    shutdown: &CancellationToken,
    service: &mut JoinSet<Result<(), RunError>>,
) -> Result<(), RunError> {
    let shutdowns: Vec<_> = jobs.iter().map(|(_, manager)| manager.shutdown()).chain([shutdown.clone()]).collect();
    let mut one_is_told = select_all(shutdowns.iter().map(|shutdown| Box::pin(shutdown.cancelled())));
    let mut running = JoinSet::new();
    for (name, manager) in jobs {
        let span = tracing::info_span!(target: JOB, "job", %name);
        let run = async move {
            // The source says what a person needs; the job that it is of is in the log line, too.
            manager.run_until_shutdown().await.map_err(|source| RunError::Job { name, source: Box::new(source) })
        };
        running.spawn(run.instrument(span));
    }
    let mut failed = None;
    let mut is_told = false;
    loop {
        let error = tokio::select! {
            _ = &mut one_is_told, if !is_told => {
                is_told = true;
                shutdowns.iter().for_each(CancellationToken::cancel);
                continue;
            }
            ended = running.join_next() => match ended {
                None => break,
                Some(Ok(Ok(()))) => continue,
                Some(Ok(Err(error))) => error,
                Some(Err(error)) => RunError::TaskPanicked { name: "job".into(), message: error.to_string() },
            },
            error = first_failure(service) => error,
        };
        shutdown.cancel();
        if failed.is_none() {
            tracing::error!(error = %in_one_line(&error), "the other jobs are stopped, too");
            failed = Some(error);
        } else {
            tracing::warn!(error = %in_one_line(&error), "failed while shutting down");
        }
    }
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests;

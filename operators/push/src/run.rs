//! The parts put together to a program.

use std::{process::ExitCode, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::ledger::{ClusterIdentity, DrainError};
use konverge_core::{digest::DigestKey, error::in_one_line};
use konverge_jobs::{Base, Log, ProgramError, Settings, run_program, run_task};
use konverge_runtime::{
    Controller, Informers, Manager, Priority, Queue,
    checks::Probe,
    watch::{Guarded, WatchHealth, WatchOptions},
};
use konverge_vault::{
    Vault,
    environment::{self, EnvironmentError},
};
use konverge_workload::Workload;
use kube::{Client, core::PartialObjectMeta};
use tokio::{runtime::Handle, sync::watch, time::sleep};

use crate::{
    bindings::Bindings,
    config::{Config, PROGRAM, Task},
    deletions::Deletions,
    drain,
    journal::Journal,
    messages,
    metrics::Metrics,
    object::{Kind, ObjectRef},
    orphans::{Clearing, Heirs, Orphans},
    prefetch::Prefetch,
    reconcile::{Paths, Pusher, Reporter, SecretReader},
    runtime_info::RuntimeInfo,
    search::{Lost, Search},
    store::{Store, identity},
    vault_push::VaultPush,
    watch::{BindingUpdater, RECOVERED, SecretHandler, VaultPushHandler, WorkloadHandler},
};

/// The pause between two requests whether Vault serves.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// How long a run may take that has thousands of paths.
const RUN: Duration = Duration::from_mins(10);

/// The operator cannot start, whatever the servers do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program cannot start, or could not go on.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The way to Vault cannot be used.
    #[error(transparent)]
    Vault(#[from] EnvironmentError),
    /// Objects could not be released.
    #[error(transparent)]
    Drain(#[from] DrainError),
}

/// Runs the operator until it is told to stop. An error that no server can mend ends it at once with status 1; a
/// server that is away does not.
pub async fn run(config: Config) -> ExitCode {
    let log = Log { format: config.log.format(), filter: config.log.filter() };
    let settings = config.to_string();
    match config.task {
        Task::Run => Box::pin(run_program(PROGRAM, log, &settings, job(config))).await,
        Task::Drain => Box::pin(run_task(PROGRAM, log, &settings, drain(config))).await,
    }
}

/// Releases all objects, for an uninstall.
async fn drain(config: Config) -> Result<(), StartError> {
    let client = config.program().client().await?;
    Ok(drain::drain(&client, config.push.namespace.as_deref(), &config.push.kinds).await?)
}

/// The operator, ready to run, in a process that logs already.
pub async fn job(config: Config) -> Result<Manager, StartError> {
    let access = environment::access(&config.vault.flags())?;
    for warning in access.warnings {
        tracing::warn!("{warning}");
    }
    let vault = Vault::new(&access.vault);
    for open in config.push.open() {
        tracing::warn!("{open}");
    }
    let mut manager = assemble(config, vault.clone()).await?;
    if let Some(exposed) = access.exposed {
        // The log's line is gone some day; the trouble is not.
        manager.checks().warning("way-to-vault", move || Err(exposed.clone()));
    }
    // An unused token is revoked instead of left to expire.
    manager.on_shutdown(async move { vault.close().await });
    Ok(manager)
}

/// The operator, ready to run, with a client of Vault that is made already. Nothing is sent to Vault before it runs.
pub async fn assemble(config: Config, vault: Vault) -> Result<Manager, StartError> {
    let Base { mut manager, metrics, client: kubernetes, leadership, events, .. } = config.program().assemble().await?;
    let counts = counts(&metrics, &vault);
    report_limits(&counts);
    let (rules, cluster) = (config.push.allow_path.clone(), config.push.cluster().map(str::to_owned));
    let bindings = Arc::new(Bindings::within(rules, cluster, counts.reasons()));
    let (looks, gauge) = (Arc::clone(&bindings), counts.clone());
    metrics.before_scrape(move || gauge.oldest_look(looks.oldest_look()));
    let queue = Queue::new("push", metrics.queues()).with_namespaces(|key: &ObjectRef| &key.namespace);
    follow_vault(&mut manager, vault.clone(), &bindings, &queue);

    let lost = Lost::default();
    let updater = BindingUpdater {
        bindings: Arc::clone(&bindings),
        queue: queue.clone(),
        metrics: counts.clone(),
        lost: lost.clone(),
    };
    let (watches, secrets) = watch_all(&mut manager, &kubernetes, &config, &updater);

    let identity = identify(&mut manager, &kubernetes, &config, secrets);
    let store = Store::new(vault, counts.clone(), identity, leadership);
    let orphans = Orphans::new(kubernetes.clone(), kubernetes.default_namespace());
    let (budget, grace) = (config.push.deletion_budget(), config.push.deletion_grace);
    let deletions = Deletions::new(budget, grace, Arc::clone(&bindings), Arc::clone(&orphans.added));
    let (stopped, gauge) = (deletions.clone(), counts.clone());
    metrics.before_scrape(move || gauge.stopped(stopped.stopped()));
    let stopped = deletions.clone();
    let is_stopped = move || stopped.stopped().map_or(Ok(()), |stopped| Err(messages::stopped(&stopped)));
    manager.checks().warning("deletions", is_stopped);
    let (journal, write_journal) = Journal::new(kubernetes.clone(), kubernetes.default_namespace());
    manager.task("journal", write_journal);
    let (prefetch, keep_tidy) = Prefetch::new(kubernetes.clone(), Arc::clone(&bindings), queue.clone());
    manager.task("read-ahead", keep_tidy);
    let policy = Arc::new(config.push);
    let (refused, seen) = watch::channel(None);
    let is_refused = move || seen.borrow().as_deref().map_or(Ok(()), |refused| Err(messages::cannot_search(refused)));
    manager.checks().warning("search", is_refused);
    let search = Search {
        store: store.clone(),
        bindings: Arc::clone(&bindings),
        orphans: orphans.clone(),
        policy: Arc::clone(&policy),
        metrics: counts.clone(),
        client: kubernetes.clone(),
        lost,
        refused,
    };
    let pusher = Arc::new(Pusher {
        reader: SecretReader::new(kubernetes.clone(), prefetch, Arc::clone(&bindings), counts.clone(), policy.binary),
        paths: Paths {
            store: store.clone(),
            bindings: Arc::clone(&bindings),
            queue: queue.clone(),
            metrics: counts.clone(),
            digest_key: DigestKey::new(rand::random()),
            policy: Arc::clone(&policy),
        },
        reporter: Reporter::new(
            kubernetes.clone(),
            events.clone(),
            Arc::clone(&bindings),
            queue.clone(),
            policy.terminating_namespace_deadline,
        ),
        journal,
        heirs: Heirs::new(store.clone(), Arc::clone(&bindings), queue.clone()),
        orphans: orphans.clone(),
        bindings: Arc::clone(&bindings),
        queue: queue.clone(),
        metrics: counts.clone(),
        client: kubernetes,
        policy: Arc::clone(&policy),
        deletions: deletions.clone(),
    });
    let clearing = Clearing::new(orphans, store, bindings, queue.clone(), counts, deletions, events);
    manager.leader_task("journal-recall", Arc::clone(&pusher).recall_at_start());
    let controller = Controller::new(pusher, queue, metrics.controllers())
        .workers(policy.workers.into())
        .time_limit(run_limit(config.vault.vault_timeout));
    manager.controller("push", controller);
    manager.leader_task("search", search.run(watches.clone()));
    manager.leader_task("orphans", clearing.run(watches));
    Ok(manager)
}

/// Registers the metrics of push.
fn counts(metrics: &konverge_runtime::Metrics, vault: &Vault) -> Metrics {
    let counts = metrics.register(Metrics::new);
    let (logins, gauge) = (vault.clone(), counts.clone());
    metrics.before_scrape(move || gauge.logins(logins.login_counts()));
    counts
}

/// Reports the limits of the process, in the metrics and in the log.
fn report_limits(counts: &Metrics) {
    let info = RuntimeInfo::detect();
    let workers = Handle::current().metrics().num_workers();
    tracing::info!(%info, workers, "what the process may use");
    for note in &info.notes {
        tracing::warn!("{note}");
    }
    counts.runtime(&info, workers);
}

/// Follows whether Vault serves and accepts our login: for readiness, and for the objects that wait for it.
fn follow_vault(manager: &mut Manager, vault: Vault, bindings: &Arc<Bindings>, queue: &Queue<ObjectRef>) {
    let probe = manager.checks().readiness_probe("vault", "Vault was not asked yet");
    manager.task("vault", poll(vault, probe, Arc::clone(bindings), queue.clone()));
}

/// Polls Vault for ever. When Vault works again, queues all objects whose last run failed.
async fn poll(vault: Vault, probe: Probe, bindings: Arc<Bindings>, queue: Queue<ObjectRef>) {
    loop {
        let now = check(&vault).await;
        match (probe.replace(now.clone()), now) {
            (Err(_), Ok(())) => {
                tracing::info!("Vault can be worked with");
                queue.add_all(bindings.failing(), Priority::Normal, RECOVERED);
            }
            (before, Err(why)) if before.as_ref() != Err(&why) => tracing::warn!("{why}"),
            _ => {}
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Checks that Vault serves and accepts our login.
async fn check(vault: &Vault) -> Result<(), String> {
    let health = vault.health().await.map_err(|error| in_one_line(&error))?;
    if !health.initialized || health.sealed {
        let state = if health.initialized { "sealed" } else { "not initialised" };
        return Err(format!("Vault is {state}; the operator writes the Secrets once it is unsealed"));
    }
    vault.log_in().await.map_err(|error| in_one_line(&error))
}

/// Finds out which installation this is. Until `secrets` has shown a list, a refusal may come from an API server that has just started.
fn identify(manager: &mut Manager, client: &Client, config: &Config, secrets: WatchHealth) -> ClusterIdentity {
    let identity = identity(client.clone(), config.push.instance.clone(), move || secrets.is_synced());
    let known = identity.clone();
    manager.checks().readiness("cluster-identity", move || known.check());
    manager.task("cluster-identity", identity.clone().run());
    identity
}

/// Watches each enabled kind, and always Secrets, because they wake workloads. Returns the health of each watch.
///
/// The kinds that the original does not know may be missing in its role, and `VaultPush` in the cluster. Each of them is left out until its
/// watch is possible.
fn watch_all(
    manager: &mut Manager,
    client: &Client,
    config: &Config,
    updater: &BindingUpdater,
) -> (Vec<(Kind, WatchHealth)>, WatchHealth) {
    let options = WatchOptions::default().with(|options| options.namespace.clone_from(&config.push.namespace));
    let mut informers = Informers::new(manager, client.clone(), options);
    let secrets = SecretHandler::new(updater.clone(), config.push.kinds.contains(&Kind::Secret));
    let secrets = informers.required::<PartialObjectMeta<Secret>, _, _>(&(), secrets);
    let mut watches = Vec::new();
    for &kind in &config.push.kinds {
        let health = match kind.workload() {
            Some(workload) => {
                let handler = WorkloadHandler { updater: updater.clone(), kind };
                if kind.is_original() {
                    informers.required::<Workload, _, _>(&workload, handler)
                } else {
                    informers.optional::<Workload, _, _>(&workload, handler)
                }
            }
            None if kind == Kind::VaultPush => {
                informers.optional::<Guarded<VaultPush>, _, _>(&(), VaultPushHandler { updater: updater.clone() })
            }
            None => secrets.clone(),
        };
        watches.push((kind, health));
    }
    (watches, secrets)
}

/// How long one run may take. A request to Vault that is not answered ends before, so that the run can tell of it and go on elsewhere.
fn run_limit(vault_timeout: Duration) -> Duration {
    RUN.max(vault_timeout.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_outlasts_a_request_that_is_not_answered() {
        for timeout in [Duration::from_secs(1), Duration::from_mins(1), Duration::from_mins(30), Duration::MAX / 2] {
            assert!(run_limit(timeout) > timeout && run_limit(timeout) >= RUN, "{timeout:?}");
        }
    }
}

//! The parts put together to a program.

use std::{
    process::ExitCode,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, future::pending};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_core::error::in_one_line;
use konverge_jobs::{Base, ProgramError, Settings, run_program};
use konverge_runtime::{
    Controller, Informers, Manager,
    watch::{Guarded, Presence, WatchOptions},
};
use konverge_vault::{
    Vault, Watches,
    environment::{EnvironmentError, VaultEnvironment},
};
use konverge_workload::{SecretProviderClass, Workload, WorkloadKind};
use kube::{Client, core::PartialObjectMeta};

use crate::{
    budget::Budget,
    config::{Config, PROGRAM, renamed_variables},
    convert::TriggerResource,
    digest_key::Key,
    index::Index,
    messages,
    metrics::Metrics,
    object::SourceKind,
    parts::{Parts, Queues},
    reader::{Reader, VaultSource},
    reconcile::Roller,
    status_controller::StatusController,
    time::Time,
    vault_rollout::VaultRollout,
    vault_sync_status::VaultSyncStatus,
    watch::{Classes, Sources, Triggers, Workloads},
    writer::Writer,
};

/// The operator cannot start, whatever the servers do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program cannot start, or could not go on.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The way to Vault cannot be used.
    #[error(transparent)]
    Vault(#[from] EnvironmentError),
}

/// Runs the operator until it is told to stop. A setting that cannot work ends it at once with status 1; a server that is away does not.
pub async fn run(config: Config) -> ExitCode {
    let (format, settings) = (config.log_format, config.to_string());
    Box::pin(run_program(PROGRAM, format.into(), &settings, assemble(config))).await
}

/// The operator, ready to run. Nothing is asked of the API server before it runs.
pub async fn assemble(config: Config) -> Result<Manager, StartError> {
    for warning in renamed_variables(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        tracing::warn!("{warning}");
    }
    let Base { mut manager, metrics, client, client_of_each_replica, events, .. } = config.program().assemble().await?;
    let parts = Arc::new(Parts {
        index: Index::new(config.others(), config.pace.breaker()),
        budget: Mutex::new(Budget::new(config.pace.limits())),
        metrics: metrics.register(Metrics::new),
        key: load_digest_key(&mut manager, client_of_each_replica, &config),
        queues: Queues::new(&metrics),
        announcer: messages::announcer(events.clone()),
        source_announcer: messages::source_announcer(events),
    });
    let vault = reach_vault(&mut manager, &config)?;
    let options = WatchOptions::default().with(|options| options.namespace.clone_from(&config.namespace));
    let mut informers = Informers::new(&mut manager, client.clone(), options);
    let watched = watch_all(&mut informers, &config.kinds, &parts);
    let triggers_seen = vault.is_some().then(|| watch_triggers(&mut informers, &config, &parts));
    // The order of waves and the rollouts under way are known when all objects have been seen.
    let all_seen = async move {
        watched.await;
        if let Some(seen) = triggers_seen {
            seen.await;
        }
    }
    .shared();
    let seen = manager.checks().readiness_flag("all-seen", "not all watched objects have been listed yet");
    // A standby has seen them, too.
    manager.task("all-seen", all_seen.clone().map(move |()| seen.set(true)).then(|()| pending()));
    let vault = vault.map(|vault| VaultSource::new(vault, Arc::clone(&parts)));
    let requests = vault.as_ref().map(|vault| vault.watches().clone());
    // The metrics outlive the parts, which hold handles to them.
    let measured = Arc::downgrade(&parts);
    metrics.before_scrape(move || {
        if let Some(parts) = measured.upgrade() {
            let questions = requests.as_ref().map_or(0, Watches::questions);
            parts.metrics.measure(&parts.index, questions, Time::now());
        }
    });
    let workers = config.workers.into();
    let Queues { workloads, sources, triggers } = parts.queues.clone();
    let reader = Reader { client: client.clone(), parts: Arc::clone(&parts), vault };
    let reader = Controller::new(Arc::new(reader), sources, metrics.controllers()).workers(workers);
    manager.controller("roll-sources", reader);
    let status_controller =
        StatusController::new(client.clone(), Arc::clone(&parts), config.vault.write_spec_timestamp);
    let status_controller = Controller::new(Arc::new(status_controller), triggers, metrics.controllers());
    manager.controller("roll-triggers", status_controller.workers(workers).ready(all_seen.clone()));
    let roller = Roller { writer: Writer::new(client.clone()), client, parts, pace: config.pace };
    let roller = Controller::new(Arc::new(roller), workloads, metrics.controllers());
    manager.controller("roll", roller.workers(workers).ready(all_seen));
    Ok(manager)
}

/// Loads the key of digests on each replica. The program is ready once it is there.
fn load_digest_key(manager: &mut Manager, client: Client, config: &Config) -> Key {
    let key = Key::default();
    let check = key.clone();
    manager.checks().readiness("digest-key", move || check.check());
    let load = key.clone().load(client, config.digest_key.clone());
    // A task that ends would end the program.
    manager.task("digest-key", load.then(|()| pending()));
    key
}

/// Vault, if one is named.
fn reach_vault(manager: &mut Manager, config: &Config) -> Result<Option<Vault>, StartError> {
    let Some(flags) = config.vault.flags() else { return Ok(None) };
    let mut environment = VaultEnvironment::of_process()?;
    if let Some(namespace) = config.vault.namespace_of_url() {
        environment = environment.default_namespace(namespace);
    }
    if config.vault.allow_path.is_empty() {
        tracing::warn!(
            "no --allow-path rule: a VaultSyncStatus or VaultRollout of any namespace can name every secret that the operator's token can read; \
             --allow-path='*=secret/data/{{namespace}}/*' limits each namespace to a folder of its own"
        );
    }
    let access = environment.access(&flags)?;
    for warning in access.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(exposed) = access.exposed {
        // The log's line is gone some day; the trouble is not.
        manager.checks().warning("way-to-vault", move || Err(exposed.clone()));
    }
    let vault = Vault::new(&access.vault);
    let login = vault.clone();
    // Sources in the cluster are served all the same.
    manager
        .checks()
        .warning("vault", move || login.login_failure().map_or(Ok(()), |failure| Err(in_one_line(&failure))));
    let closing = vault.clone();
    // A token that nobody needs any more is not left to its lease.
    manager.on_shutdown(async move { closing.close().await });
    Ok(Some(vault))
}

/// Watches triggers, as soon as their kinds are installed. Returns a future that ends when all of them have been seen, or when
/// it is known that there can be none.
fn watch_triggers(
    informers: &mut Informers<'_>,
    config: &Config,
    parts: &Arc<Parts>,
) -> impl Future<Output = ()> + Send + use<> {
    let settings = Arc::new(config.vault.settings());
    let handler = || Triggers { parts: Arc::clone(parts), settings: Arc::clone(&settings) };
    let watches = [
        (VaultSyncStatus::KIND, informers.optional::<Guarded<VaultSyncStatus>, Guarded<_>, _>(&(), handler())),
        (VaultRollout::KIND, informers.optional::<Guarded<VaultRollout>, Guarded<_>, _>(&(), handler())),
    ];
    let parts = Arc::clone(parts);
    async move {
        for (kind, watch) in watches {
            // If they may not be listed, their recorded entries are kept.
            if watch.presence().await == Presence::Missing {
                parts.no_triggers(kind);
            }
        }
    }
}

/// Watches Secrets, `ConfigMaps`, each kind of workload, and the classes of the Secrets Store CSI driver. Returns a future that ends when all of them have
/// been seen, or when it is known that there are none to be seen: Argo's kind and the classes need not be there.
fn watch_all(
    informers: &mut Informers<'_>,
    kinds: &[WorkloadKind],
    parts: &Arc<Parts>,
) -> impl Future<Output = ()> + Send + use<> {
    let mut watches = Vec::new();
    for &kind in kinds {
        let handler = Workloads { parts: Arc::clone(parts), kind };
        watches.push(if kind == WorkloadKind::Rollout {
            informers.optional::<Guarded<Workload>, _, _>(&kind, handler)
        } else {
            informers.required::<Guarded<Workload>, _, _>(&kind, handler)
        });
    }
    let (secrets, maps) = (SourceKind::Secret, SourceKind::ConfigMap);
    watches.extend([
        informers.required::<PartialObjectMeta<Secret>, _, _>(&(), Sources::new(Arc::clone(parts), secrets)),
        informers.required::<PartialObjectMeta<ConfigMap>, _, _>(&(), Sources::new(Arc::clone(parts), maps)),
        informers.optional::<Guarded<SecretProviderClass>, _, _>(&(), Classes { parts: Arc::clone(parts) }),
    ]);
    // Without all of them, template owners, earlier waves and rollouts under way are not known.
    async move {
        for watch in watches {
            watch.presence().await;
        }
    }
}

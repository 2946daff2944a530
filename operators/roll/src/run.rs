//! The parts put together to a program.

use std::{
    process::ExitCode,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, future::pending};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_apply::events::EventSink;
use konverge_core::error::in_one_line;
use konverge_jobs::{Base, ProgramError, Settings, run_program};
use konverge_runtime::{
    Controller, Informers, Manager,
    watch::{Guarded, Presence, WatchOptions},
};
use konverge_vault::{
    Vault,
    environment::{EnvironmentError, VaultEnvironment},
};
use konverge_workload::{SecretProviderClass, Workload, WorkloadKind};
use kube::{Client, core::PartialObjectMeta};

use crate::{
    breaker,
    budget::{Budget, Limits},
    config::{Config, PROGRAM, Pace, renamed_variables},
    digest_key::Key,
    follow::{SourceParts, VaultSource},
    index::Index,
    messages,
    metrics::Metrics,
    object::SourceKind,
    reader::Reader,
    reconcile::{Policy, Roller},
    status_controller::StatusController,
    time::Time,
    trigger::{TriggerKind, TriggerRef, WatchedTrigger},
    vault_rollout::{self, VaultRollout},
    vault_sync_status::{self, VaultSyncStatus},
    wakeups::Queues,
    watch::{Classes, Feed, Sources, Triggers, Workloads},
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
    for warning in renamed_variables(|name| std::env::var_os(name).is_some()) {
        tracing::warn!("{warning}");
    }
    let Base { mut manager, metrics, client, client_of_each_replica, events, .. } = config.program().assemble().await?;
    let counts = metrics.register(Metrics::new);
    let key = load_digest_key(&mut manager, client_of_each_replica, &config);
    let index = Arc::new(Index::new(config.others(), breaker_settings(&config)));
    let (measured, gauges) = (Arc::clone(&index), counts.clone());
    metrics.before_scrape(move || gauges.measure(&measured, Time::now()));
    let parts = Parts {
        client,
        index,
        budget: Arc::new(Mutex::new(Budget::new(limits(&config)))),
        key,
        queues: Queues::new(&metrics),
        events,
        counts,
    };
    let feed = parts.feed();
    let vault = reach_vault(&mut manager, &config)?;
    let options = WatchOptions::default().with(|options| options.namespace.clone_from(&config.namespace));
    let mut informers = Informers::new(&mut manager, parts.client.clone(), options);
    let watched = watch_all(&mut informers, &config.kinds, &feed);
    let triggers_seen = vault.is_some().then(|| watch_triggers(&mut informers, &config, &feed));
    let workers = config.workers.into();
    let sources = parts.queues.sources.clone();
    let reader = Controller::new(Arc::new(parts.reader(vault)), sources, metrics.controllers()).workers(workers);
    manager.controller("roll-sources", reader);
    // The order of waves and the rollouts under way are known when all objects have been seen.
    let all_seen = async move {
        watched.await;
        if let Some(seen) = triggers_seen {
            seen.await;
        }
    }
    .shared();
    let seen = manager.checks().readiness_flag("all-seen", "not all that takes part has been seen yet");
    // A standby has seen them, too.
    manager.task("all-seen", all_seen.clone().map(move |()| seen.set(true)).then(|()| pending()));
    let triggers = parts.queues.triggers.clone();
    let status_controller = Arc::new(parts.status_controller(config.vault.write_spec_timestamp));
    let status_controller = Controller::new(status_controller, triggers, metrics.controllers()).workers(workers);
    manager.controller("roll-triggers", status_controller.ready(all_seen.clone()));
    let workloads = parts.queues.workloads.clone();
    let roller = Controller::new(Arc::new(parts.roller(policy(&config))), workloads, metrics.controllers());
    manager.controller("roll", roller.workers(workers).ready(all_seen));
    Ok(manager)
}

/// The parts that the controllers and the watches share.
struct Parts {
    client: Client,
    index: Arc<Index>,
    budget: Arc<Mutex<Budget>>,
    key: Key,
    queues: Queues,
    events: EventSink,
    counts: Metrics,
}

impl Parts {
    fn feed(&self) -> Feed {
        Feed {
            index: Arc::clone(&self.index),
            budget: Arc::clone(&self.budget),
            queues: self.queues.clone(),
            announcer: messages::source_announcer(self.events.clone()),
        }
    }

    /// To be called within a tokio runtime.
    fn reader(&self, vault: Option<Vault>) -> Reader {
        let parts = SourceParts {
            index: Arc::clone(&self.index),
            key: self.key.clone(),
            queues: self.queues.clone(),
            announcer: messages::source_announcer(self.events.clone()),
            metrics: self.counts.clone(),
        };
        let vault = vault.map(|vault| VaultSource::new(vault, parts.clone()));
        Reader { client: self.client.clone(), parts, vault }
    }

    fn status_controller(&self, write_spec_timestamp: bool) -> StatusController {
        let (client, index, key) = (self.client.clone(), Arc::clone(&self.index), self.key.clone());
        StatusController::new(client, index, key, messages::announcer(self.events.clone()), write_spec_timestamp)
    }

    fn roller(self, policy: Policy) -> Roller {
        Roller {
            client: self.client.clone(),
            writer: Writer::new(self.client),
            index: self.index,
            budget: self.budget,
            key: self.key,
            queues: self.queues,
            announcer: messages::announcer(self.events),
            metrics: self.counts,
            policy,
        }
    }
}

/// Returns how soon a workload may be rolled, by the flags.
fn policy(config: &Config) -> Policy {
    let Pace { min_interval, debounce, rollout_timeout, .. } = config.pace;
    Policy { min_interval, debounce, rollout_timeout }
}

/// Returns when a source has run away, by the flags.
fn breaker_settings(config: &Config) -> breaker::Settings {
    breaker::Settings {
        changes: config.pace.runaway_changes,
        within: SignedDuration::from_mins(1),
        quiet: config.pace.runaway_quiet,
    }
}

/// How many rollouts the flags allow. A limit of 0 is none.
fn limits(config: &Config) -> Limits {
    Limits {
        per_minute: Some(config.pace.max_rollouts_per_minute).filter(|most| *most > 0),
        concurrent: Some(config.pace.max_concurrent_rollouts).filter(|most| *most > 0),
        timeout: config.pace.rollout_timeout,
    }
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
    manager.afterwards(async move { closing.close().await });
    Ok(Some(vault))
}

/// Watches objects that ask for rollouts of others, as soon as their kind is there. Returns what ends when all of them have been seen, or when
/// it is known that there can be none.
fn watch_triggers(
    informers: &mut Informers<'_>,
    config: &Config,
    feed: &Feed,
) -> impl Future<Output = ()> + Send + use<> {
    let settings = config.vault.settings();
    let shown = within(config, move |object| vault_sync_status::shown(object, settings));
    let statuses = Triggers { feed: feed.clone(), kind: TriggerKind::VaultSyncStatus, shown };
    let shown = within(config, move |object| vault_rollout::shown(object, settings));
    let rollouts = Triggers { feed: feed.clone(), kind: TriggerKind::VaultRollout, shown };
    let watches = [
        (statuses.kind, informers.optional::<Guarded<VaultSyncStatus>, Guarded<_>, _>(&(), statuses)),
        (rollouts.kind, informers.optional::<Guarded<VaultRollout>, Guarded<_>, _>(&(), rollouts)),
    ];
    let feed = feed.clone();
    async move {
        for (kind, watch) in watches {
            // Where they are hidden, what they have asked for is kept.
            if watch.presence().await == Presence::Missing {
                feed.no_triggers(kind);
            }
        }
    }
}

/// Returns a trigger, with its spec refused if it names a secret that it may not name.
fn within<K, F: Fn(K) -> Option<(TriggerRef, WatchedTrigger)>>(
    config: &Config,
    shown: F,
) -> impl Fn(K) -> Option<(TriggerRef, WatchedTrigger)> + use<K, F> {
    let rules = config.vault.allow_path.clone();
    move |object| {
        let (key, shown) = shown(object)?;
        Some((key.clone(), shown.within(&rules, &key)))
    }
}

/// Watches Secrets, `ConfigMaps`, each kind of workload, and the classes of the Secrets Store CSI driver. Returns what ends when all of them have
/// been seen, or when it is known that there are none to be seen: Argo's kind and the classes need not be there.
fn watch_all(
    informers: &mut Informers<'_>,
    kinds: &[WorkloadKind],
    feed: &Feed,
) -> impl Future<Output = ()> + Send + use<> {
    let mut watches = Vec::new();
    for &kind in kinds {
        let handler = Workloads { feed: feed.clone(), kind };
        watches.push(if kind == WorkloadKind::Rollout {
            informers.optional::<Guarded<Workload>, _, _>(&kind, handler)
        } else {
            informers.required::<Guarded<Workload>, _, _>(&kind, handler)
        });
    }
    let (secrets, maps) = (SourceKind::Secret, SourceKind::ConfigMap);
    watches.extend([
        informers.required::<PartialObjectMeta<Secret>, _, _>(&(), Sources::new(feed.clone(), secrets)),
        informers.required::<PartialObjectMeta<ConfigMap>, _, _>(&(), Sources::new(feed.clone(), maps)),
        informers.optional::<Guarded<SecretProviderClass>, _, _>(&(), Classes { feed: feed.clone() }),
    ]);
    // Without all of them, template owners, earlier waves and rollouts under way are not known.
    async move {
        for watch in watches {
            watch.presence().await;
        }
    }
}

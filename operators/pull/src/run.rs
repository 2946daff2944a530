//! The parts put together to a program.

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Secret;
use konverge::{Home, Operator, Part, Setup};
use konverge_core::error::in_one_line;
use konverge_jobs::{ProgramError, run_program};
use konverge_runtime::{Controller, Informers, Manager, Queue, checks::Probe, watch::WatchOptions};
use konverge_vault::{
    Vault,
    environment::{self, Access, EnvironmentError},
};
use konverge_zopp_client::{
    Client, ConfigError, Connection, CredentialsError, DeriveError, Identity, Trust,
    config::{canonical_address, is_unprotected},
    config_file::{self, Exposure},
};
use kube::core::PartialObjectMeta;
use tokio::sync::mpsc;

use crate::{
    bindings::{Bindings, SecretRef},
    config::{Config, PROGRAM},
    connect::Connecting,
    hub::Hubs,
    metrics::Metrics,
    objects::{
        Objects,
        secret_pull::SecretPull,
        secret_source::{ClusterSecretSource, SecretSource},
        zopp_secret_sync::ZoppSecretSync,
    },
    reconcile::Pull,
    source::Sources,
    vault::{self, VaultSource},
    wakes::Wakes,
    watch::{SecretHandler, Subscriptions, wake},
    zopp::{self, Zopp, memory::Memory, messages, record::RecordKey},
};

/// How many Secrets may wait for their environment at once. Waiting costs next to nothing, and with this many, environments
/// that do not answer keep no worker from those that do. How many are written at once is up to `--workers`.
const WAITING: usize = 256;

/// The answer of `/readyz` is at most this much older than the last answer of the zopp server.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The operator cannot start, whatever the servers do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program cannot start, or could not go on.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// There are no usable credentials.
    #[error("cannot use the zopp credentials: {0}")]
    Credentials(#[from] CredentialsError),
    /// The key of the operator's records could not be derived.
    #[error("cannot derive the key of the records on Secrets: {0}")]
    RecordKey(#[from] DeriveError),
    /// The server's address or certificate is unusable.
    #[error(transparent)]
    Server(#[from] ConfigError),
    /// Vault cannot be used as the settings say.
    #[error(transparent)]
    Vault(#[from] EnvironmentError),
    /// The operator cannot be put together.
    #[error(transparent)]
    Operator(#[from] konverge::StartError),
}

/// Runs the operator until it is told to stop. Settings that can never work end it at once with status 1; a server that is away does not.
pub async fn run(config: Config) -> ExitCode {
    let config = config.as_original();
    let (format, settings) = (config.log_format, config.to_string());
    Box::pin(run_program(PROGRAM, format.into(), &settings, job(config))).await
}

/// The operator, ready to run, in a process that logs already.
pub async fn job(config: Config) -> Result<Manager, StartError> {
    let protection = konverge_zopp_memory::protect();
    tracing::debug!("{protection}");
    let zopp = if config.server.secret_sources_only {
        None
    } else if config.vault.flags().is_some() && !has_credentials(&config) {
        tracing::info!("no credentials of zopp are given, so only Vault is followed");
        None
    } else {
        Some(connect_to_zopp(&config)?)
    };
    assemble(config, zopp).await
}

/// Returns whether somebody has given credentials of zopp.
fn has_credentials(config: &Config) -> bool {
    let is_default_there = || config_file::default_path().is_ok_and(|file| file.exists());
    config.server.credentials.is_some() || Identity::is_in_environment() || is_default_there()
}

/// Loads the credentials of zopp. Sends nothing.
fn connect_to_zopp(config: &Config) -> Result<Client, StartError> {
    let identity = Identity::load(config.server.credentials.as_deref())?;
    if let Some(exposure) = exposed_credentials(config.server.credentials.as_deref(), is_in_cluster()) {
        tracing::warn!("{}. The credentials file holds private keys and pins: {}", exposure.reason, exposure.remedy);
    }
    let address = canonical_address(&config.server.address)?;
    if is_unprotected(&address) {
        tracing::warn!(
            server = address,
            "the server is another machine and its address does not use TLS: everybody on the way can read and change what is sent; use \
             https://"
        );
    }
    let trust = Trust::load(config.server.credentials.as_deref(), &address).map_err(CredentialsError::from)?;
    if !config.allow.iter().any(|rule| rule.scheme() == zopp::SCHEME) {
        let about = if config.allow.is_empty() { "" } else { " for zopp" };
        tracing::warn!(
            "no --allow rule{about}: an annotated Secret of any namespace can have every environment that the operator's principal can read; \
             --allow='*=*/{{namespace}}/*' gives each namespace the projects of its own name"
        );
    }
    let zopp = Client::new(Connection::new(&config.client(trust))?, identity);
    tracing::info!(principal = zopp.identity().name(), id = zopp.identity().principal_id(), "credentials loaded");
    Ok(zopp)
}

/// Returns the way in which other users of the machine can read or replace the credentials file. In a cluster, the kubelet mounts the file with the mode that the
/// pod's volume has, and the pod has no other users.
fn exposed_credentials(file: Option<&Path>, is_in_cluster: bool) -> Option<Exposure> {
    if is_in_cluster || Identity::is_in_environment() {
        return None;
    }
    let file = file.map_or_else(config_file::default_path, |file| Ok(file.to_owned())).ok()?;
    config_file::exposure(&file)
}

/// Returns `true` if the kubelet started this process.
fn is_in_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// The operator, ready to run, with a zopp client that is made already, or without zopp. Nothing is sent before it runs.
pub async fn assemble(config: Config, zopp: Option<Client>) -> Result<Manager, StartError> {
    let zopp = zopp.map(|client| RecordKey::of(client.identity()).map(|key| (client, key))).transpose()?;
    let vault = config.vault.flags().map(|flags| environment::access(&flags)).transpose()?;
    let options = config.options();
    let operator = Operator::new(PROGRAM, env!("CARGO_PKG_VERSION")).part(Jobs { config, zopp, vault });
    Ok(operator.assemble(options).await?)
}

/// The jobs of the program: annotated Secrets, and Secrets that are made for custom resources.
struct Jobs {
    config: Config,
    /// The client, and the key of the records.
    zopp: Option<(Client, RecordKey)>,
    vault: Option<Access>,
}

impl Part for Jobs {
    /// The plugin of kubectl says what a configuration needs ([`plugin`](crate::plugin)).
    fn access(&self, _: &Home<'_>, _: &mut konverge::generate::Access, _: &mut konverge::generate::Access) {}

    fn install(self: Box<Self>, setup: &mut Setup) -> BoxFuture<'_, Result<(), konverge::StartError>> {
        self.begin(setup).boxed()
    }
}

impl Jobs {
    async fn begin(self, setup: &mut Setup) -> Result<(), konverge::StartError> {
        let Self { config, zopp, vault } = self;
        let metrics = setup.metrics.clone();
        let counts = metrics.register(Metrics::new);
        let mut sources = Sources::default();
        if let Some(zopp) = zopp {
            sources = sources.with(zopp_source(&mut setup.manager, &counts, &config, zopp));
        }
        if let Some(access) = vault {
            sources = sources.with(vault_source(&mut setup.manager, &config, access));
        }

        let (connections, closing) = (Arc::clone(sources.connections()), sources.clone());
        let is_of_cluster = config.namespace.is_none();
        let accepted = config.trust.accepted();

        let (secret_pulls, woken_pulls) = mpsc::unbounded_channel();
        let (zopp_secret_syncs, woken_syncs) = mpsc::unbounded_channel();
        let (secret_sources, woken_sources) = mpsc::unbounded_channel();
        let (cluster_secret_sources, woken_cluster_sources) = mpsc::unbounded_channel();
        let secrets = Queue::new("pull", metrics.queues()).with_namespaces(|key: &SecretRef| &key.namespace);
        let wakes =
            Wakes { secrets: secrets.clone(), secret_pulls, zopp_secret_syncs, secret_sources, cluster_secret_sources };
        let bindings = Arc::new(Bindings::new(counts.clone()));
        let wake = wake(&bindings, wakes.clone());
        let hubs = Arc::new(Hubs::new(sources.clone(), config.poll_interval, wake, counts.clone()));
        let (followed, gauge) = (Arc::downgrade(&hubs), counts.clone());
        metrics.before_scrape(move || {
            let age = followed.upgrade().and_then(|hubs| hubs.stalest());
            gauge.stalest(age.unwrap_or_default());
        });

        let subscriptions = Arc::new(Subscriptions { hubs, rules: config.allow });
        let watched = WatchOptions::default().with(|options| {
            options.namespace = config.namespace;
            options.label_selector = config.selector;
        });
        let handler = SecretHandler {
            bindings: Arc::clone(&bindings),
            subscriptions: Arc::clone(&subscriptions),
            sources,
            wakes: wakes.clone(),
        };
        let mut informers = Informers::new(&mut setup.manager, setup.client.clone(), watched);
        informers.required::<PartialObjectMeta<Secret>, _, _>(&(), handler);

        let (client, events) = (setup.client.clone(), setup.events.clone());
        let connecting = Connecting::new(client.clone(), Arc::clone(&bindings), Arc::clone(&connections), accepted);
        let pull =
            Pull::new(client, events, Arc::clone(&bindings), Arc::clone(&connections), counts, config.workers.into());
        let pull = Arc::new(pull);
        let controller = Controller::new(Arc::clone(&pull), secrets, metrics.controllers()).workers(WAITING);
        setup.manager.controller("pull", controller);
        let objects = Objects::new(pull, bindings, subscriptions, wakes);
        let of_pulls = Arc::clone(&objects).controller::<SecretPull>(woken_pulls);
        Part::install(Box::new(of_pulls), setup).await?;
        let of_syncs = objects.controller::<ZoppSecretSync>(woken_syncs);
        Part::install(Box::new(of_syncs), setup).await?;
        Part::install(Box::new(connecting.controller::<SecretSource>(woken_sources)), setup).await?;
        // An operator of one namespace sees nothing of the cluster.
        if is_of_cluster {
            let of_cluster = connecting.controller::<ClusterSecretSource>(woken_cluster_sources);
            Part::install(Box::new(of_cluster), setup).await?;
        }
        // A token that nobody needs any more does not wait for the end of its lease.
        setup.manager.on_shutdown(async move { closing.close().await });
        Ok(())
    }
}

/// Connects zopp: its environments, the check of its server, and the warning about keys that nothing pins.
fn zopp_source(manager: &mut Manager, counts: &Metrics, config: &Config, (zopp, key): (Client, RecordKey)) -> Zopp {
    let probe = manager.checks().readiness_probe("zopp-server", "the server was not asked yet");
    manager.task("reachability", probe_server(zopp.connection().clone(), probe));
    let trust = zopp.connection().trust().clone();
    let memory = Memory::new(key, trust.clone(), config.trust.accepted());
    let (counted, gauge) = (trust.clone(), counts.clone());
    manager.metrics().before_scrape(move || gauge.first_keys(counted.first_uses().len()));
    manager.checks().warning("workspace-keys", move || {
        let texts: Vec<_> =
            trust.first_uses().iter().map(|(name, fingerprint)| messages::first_key(name, *fingerprint)).collect();
        if texts.is_empty() { Ok(()) } else { Err(texts.join("; ")) }
    });
    Zopp::new(zopp, memory)
}

/// Connects Vault. Sends nothing before a Secret names a path in it.
fn vault_source(manager: &mut Manager, config: &Config, access: Access) -> VaultSource {
    if !config.allow.iter().any(|rule| rule.scheme() == vault::SCHEME) {
        tracing::warn!(
            "no --allow rule for Vault, so no Secret may name a path in it; --allow='*=vault://secret/{{namespace}}/*' gives each namespace a folder of \
             its own"
        );
    }
    for warning in access.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(exposed) = access.exposed {
        manager.checks().warning("way-to-vault", move || Err(exposed.clone()));
    }
    let vault = Vault::new(&access.vault);
    let login = vault.clone();
    let check = move || login.login_failure().map_or(Ok(()), |failure| Err(in_one_line(&failure)));
    manager.checks().warning("vault", check);
    VaultSource::new(vault, config.vault.vault_interval)
}

/// Asks the zopp server's own health check whether it is there, for readiness. Never ends.
async fn probe_server(connection: Connection, probe: Probe) {
    loop {
        drop(probe.replace(zopp::check_serving(&connection).await));
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
    };

    use super::*;

    #[test]
    fn credentials_that_other_users_can_read_are_told_outside_a_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        fs::write(&file, "{}").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(exposed_credentials(Some(&file), false), None);
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let exposure = exposed_credentials(Some(&file), false).unwrap();
        assert!(exposure.reason.contains("(mode 0644)") && exposure.remedy.starts_with("chmod 600 "), "{exposure:?}");
        assert_eq!(exposed_credentials(Some(&file), true), None);
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(exposed_credentials(Some(&file), false).is_some(), "another user can replace it");
    }
}

//! The parts put together to a program.

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use konverge_core::error::in_one_line;
use konverge_jobs::{Base, ProgramError, Settings, run_program};
use konverge_runtime::{Controller, Informers, Manager, Queue, checks::Probe, watch::WatchOptions};
use konverge_vault::{
    Vault,
    environment::{self, EnvironmentError},
};
use konverge_zopp_client::{
    Client, ConfigError, Connection, CredentialsError, DeriveError, Identity, Trust,
    config::{canonical_address, is_unprotected},
    config_file::{self, Exposure},
};
use kube::core::PartialObjectMeta;

use crate::{
    bindings::{Bindings, SecretRef},
    config::{Config, PROGRAM},
    hub::Hubs,
    metrics::Metrics,
    reconcile::Pull,
    source::Sources,
    unsupported::{self, Unsupported},
    vault::{self, VaultSource},
    watch::{SecretHandler, wake},
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
    let zopp = if config.vault.flags().is_some() && !has_credentials(&config) {
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
    let Base { mut manager, metrics, client: kubernetes, events, .. } = config.program().assemble().await?;
    let counts = metrics.register(Metrics::new);

    let mut sources = Sources::default();
    if let Some(zopp) = zopp {
        sources = sources.with(zopp_source(&mut manager, &metrics, &counts, &config, zopp)?);
    }
    if let Some(vault) = vault_source(&mut manager, &config)? {
        sources = sources.with(vault);
    }

    let bindings = Arc::new(Bindings::new(counts.clone()));
    let queue = Queue::new("pull", metrics.queues()).with_namespaces(|key: &SecretRef| &key.namespace);
    let wake = wake(&bindings, queue.clone());
    let hubs = Arc::new(Hubs::new(sources.clone(), config.poll_interval, wake, counts.clone()));
    let (followed, gauge) = (Arc::downgrade(&hubs), counts.clone());
    metrics.before_scrape(move || {
        let age = followed.upgrade().and_then(|hubs| hubs.stalest());
        gauge.stalest(age.unwrap_or_default());
    });

    let namespace = config.namespace.clone();
    let watched = WatchOptions::default().with(|options| {
        options.namespace = config.namespace;
        options.label_selector = config.selector;
    });
    let handler =
        SecretHandler { bindings: Arc::clone(&bindings), hubs, sources, rules: config.allow, queue: queue.clone() };
    let mut informers = Informers::new(&mut manager, kubernetes.clone(), watched);
    informers.required::<PartialObjectMeta<Secret>, _, _>(&(), handler);

    let unsupported = Queue::new("pull-unsupported", metrics.queues());
    let follow = unsupported::follow(kubernetes.clone(), namespace, unsupported.clone());
    manager.task("zoppsecretsyncs-watch", follow);
    let reporter = Unsupported::new(events.clone());
    manager.controller(
        "pull-unsupported",
        Controller::new(Arc::new(reporter), unsupported, metrics.controllers()).workers(1),
    );

    let pull = Pull::new(kubernetes, events, bindings, counts, config.workers.into());
    let controller = Controller::new(Arc::new(pull), queue, metrics.controllers()).workers(WAITING);
    manager.controller("pull", controller);
    Ok(manager)
}

/// Connects zopp: its environments, the check of its server, and the warning about keys that nothing pins.
fn zopp_source(
    manager: &mut Manager,
    metrics: &konverge_runtime::Metrics,
    counts: &Metrics,
    config: &Config,
    zopp: Client,
) -> Result<Zopp, StartError> {
    let probe = manager.checks().readiness_probe("zopp-server", "the server was not asked yet");
    manager.task("reachability", probe_server(zopp.connection().clone(), probe));
    let trust = zopp.connection().trust().clone();
    let accepted = config.trust.accept_older.iter().cloned().collect();
    let memory = Memory::new(RecordKey::of(zopp.identity())?, trust.clone(), accepted);
    let (counted, gauge) = (trust.clone(), counts.clone());
    metrics.before_scrape(move || gauge.first_keys(counted.first_uses().len()));
    manager.checks().warning("workspace-keys", move || {
        let texts: Vec<_> =
            trust.first_uses().iter().map(|(name, fingerprint)| messages::first_key(name, *fingerprint)).collect();
        if texts.is_empty() { Ok(()) } else { Err(texts.join("; ")) }
    });
    Ok(Zopp::new(zopp, memory))
}

/// Connects Vault, if an address is given. Sends nothing before a Secret names a path in it.
fn vault_source(manager: &mut Manager, config: &Config) -> Result<Option<VaultSource>, StartError> {
    let Some(flags) = config.vault.flags() else { return Ok(None) };
    if !config.allow.iter().any(|rule| rule.scheme() == vault::SCHEME) {
        tracing::warn!(
            "no --allow rule for Vault, so no Secret may name a path in it; --allow='*=vault://secret/{{namespace}}/*' gives each namespace a folder of \
             its own"
        );
    }
    let access = environment::access(&flags)?;
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
    let closing = vault.clone();
    // A token that nobody needs any more does not wait for the end of its lease.
    manager.on_shutdown(async move { closing.close().await });
    Ok(Some(VaultSource::new(vault, config.vault.vault_interval)))
}

/// Asks the zopp server's own health check whether it is there, for readiness. Never ends.
async fn probe_server(connection: Connection, probe: Probe) {
    loop {
        drop(probe.replace(match connection.is_serving().await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the server says that it is not serving".to_owned()),
            Err(error) => Err(error.to_string()),
        }));
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

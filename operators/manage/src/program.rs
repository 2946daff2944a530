//! The parts put together: the operator, alone and as one job of several in a process.

use std::{process::ExitCode, sync::Arc};

use clap::Parser;
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge::{
    Error, Home, Operator, Part, Setup, StartError,
    apply::ledger::DrainError,
    generate::Access,
    remote::{Remote, Remotes, Settings as RemoteSettings},
    runtime::Manager,
};
use konverge_jobs::{ProgramError, Settings, run_program, run_task};

use crate::{
    account::{Account, NETWORKS_COUNT},
    api,
    collections::Collections,
    config::{Config, Task},
    control,
    deletions::Approvals,
    expose::{self, gateway::controllers as gateway},
    left_behind::Recorder,
    metrics::Metrics,
    remote::{Groups, Networks, Policies, Records, Resources, Routers, SetupKeys},
    webhook::{self, Callers},
};

pub use crate::config::PROGRAM;

/// The operator cannot start, whatever the servers do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The program cannot start, or could not go on.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The way to the management server cannot be used.
    #[error(transparent)]
    Server(#[from] konverge_openzro::ConfigError),
    /// The operator cannot be put together.
    #[error(transparent)]
    Start(#[from] konverge::StartError),
    /// Objects could not be released.
    #[error(transparent)]
    Drain(#[from] DrainError),
}

/// Runs the operator until it is told to stop. Settings that can never work end it at once with status 1; a server that is away does not.
pub async fn run(config: Config) -> ExitCode {
    let (log, settings) = (config.log_format().into(), config.to_string());
    match config.task {
        Task::Run => Box::pin(run_program(PROGRAM, log, &settings, job(config))).await,
        Task::Drain => Box::pin(run_task(PROGRAM, log, &settings, drain(config))).await,
    }
}

/// Releases all objects, for an uninstall.
async fn drain(config: Config) -> Result<(), RunError> {
    let options = config.options();
    Ok(everything()?.drain(&config.program().client().await?, &options).await?)
}

/// The operator, ready to run, in a process that logs already.
pub async fn job(config: Config) -> Result<Manager, RunError> {
    if config.openzro_api_key.is_some() && config.openzro_api_key_file.is_none() {
        tracing::warn!(
            "the token is on the command line or in a variable, where other processes may read it, and a new one needs a restart; mount \
             the Secret as a file and use --openzro-api-key-file"
        );
    }
    for open in config.open() {
        tracing::warn!("not confined, for every user who may write objects of openZro: {open}");
    }
    let metrics = Metrics::default();
    let account = config.account(&metrics)?;
    if account.is_none() {
        tracing::warn!("there is no token, so nothing in openZro is managed; use --openzro-api-key-file");
    }
    Ok(operator(&config, account, metrics).assemble(config.options()).await?)
}

/// The operator with all its parts, for manifests. It authenticates the readers of its metrics. It reaches no server.
pub fn for_manifests() -> Result<Operator, konverge_openzro::ConfigError> {
    with_flags(&["--enable-metrics-auth"])
}

/// The operator with every kind on which it sets finalizers with any setting. It reaches no server.
pub fn everything() -> Result<Operator, konverge_openzro::ConfigError> {
    with_flags(&["--gateway-api-enabled"])
}

fn with_flags(flags: &[&str]) -> Result<Operator, konverge_openzro::ConfigError> {
    let config = Config::parse_from([PROGRAM, "--openzro-api-key-file=/nowhere"].iter().chain(flags));
    let account = config.account(&Metrics::default())?;
    Ok(operator(&config, account, Metrics::default()))
}

/// The definitions of all kinds, also of those without a controller.
struct Definitions;

impl Part for Definitions {
    fn crds(&self) -> Vec<CustomResourceDefinition> {
        api::definitions()
    }

    fn access(&self, _: &Home<'_>, _: &mut Access, _: &mut Access) {}

    fn install(self: Box<Self>, _: &mut Setup) -> BoxFuture<'_, Result<(), StartError>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// The operator of an account. Without one, it manages nothing, and can still generate its manifests.
pub fn operator(config: &Config, account: Option<Account>, metrics: Metrics) -> Operator {
    let (collections, settings) = (Collections::default(), Arc::new(config.settings()));
    let operator = Operator::new(PROGRAM, env!("CARGO_PKG_VERSION"))
        .may_authenticate(config.metrics.enable_metrics_auth)
        .part(metrics)
        .part(Definitions)
        .controller(control::oz_setup_key(&collections, &settings));
    let callers = match config.webhook_client_ca {
        Some(_) => Callers::ApiServer,
        None => Callers::Anybody,
    };
    let operator = if config.enable_webhooks {
        operator.webhooks(webhook::webhooks(Arc::clone(&settings), callers))
    } else {
        operator
    };
    let Some(account) = account else { return operator };
    let approvals = Approvals::new(config.deletion_budget());
    let remote = config.remote().with(|remote| remote.deletions = approvals.deletions());
    // The list of networks is shared, and can be a little older than its collection knows.
    let of_networks = Collecting {
        account: account.clone(),
        settings: remote.clone().with(|settings| settings.settle = NETWORKS_COUNT),
    };
    let of = Collecting { account, settings: remote };
    let operator = operator.part(approvals).part(Recorder::new(collections.clone()));
    let operator = of.with(operator, &collections.groups, Groups::new);
    let operator = of.with(operator, &collections.policies, Policies::new);
    let operator = of.with(operator, &collections.setup_keys, SetupKeys::new);
    let operator = of_networks.with(operator, &collections.networks, Networks::new);
    let operator = of.with(operator, &collections.routers, Routers::new);
    let operator = of.with(operator, &collections.resources, Resources::new);
    let operator = of.with(operator, &collections.records, Records::new);
    let operator = if config.gateway_api_enabled {
        operator
            .controller(gateway::gateway_classes())
            .controller(gateway::gateways())
            .controller(gateway::http_routes())
            .controller(gateway::tcp_routes())
    } else {
        operator
    };
    operator
        .controller(control::oz_group(&collections, &settings))
        .controller(control::group(&collections, &settings))
        .controller(control::oz_policy(&collections, &settings))
        .controller(control::setup_key(&collections, &settings))
        .controller(control::oz_routing_peer(&collections, &settings))
        .controller(control::network_router(&collections, &settings))
        .controller(control::oz_resource(&collections, &settings))
        .controller(control::network_resource(&collections, &settings))
        .controller(expose::services(&settings))
}

/// Gives each collection the account and the settings.
struct Collecting {
    account: Account,
    settings: RemoteSettings,
}

impl Collecting {
    fn with<R: Remote>(&self, operator: Operator, remotes: &Remotes<R>, make: fn(Account) -> R) -> Operator {
        let (account, settings) = (self.account.clone(), self.settings.clone());
        operator.remote(remotes, move |_: &Setup| Ok::<_, Error>((make(account), settings)))
    }
}

//! The program of a single operator: its log, its server, its clients of the API server, its lease and its events.

use std::{error::Error, path::PathBuf, process::ExitCode};

use konverge_apply::events::EventSink;
use konverge_runtime::{
    Manager, Metrics,
    client::{self, ClientError, ClientOptions},
    http_server::{BindError, Listen, MetricsServerError},
    lease::{Elector, Leadership},
    manager::{RunError, Signals},
    telemetry::{self, FilterError, LogFilter, LogFormat, TelemetryError},
    tls::{FilesError, SelfSignedError},
};
use kube::Client;

use crate::MetricsOptions;

/// A program cannot start, whatever the servers do, or it could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// Logging cannot be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The log cannot be filtered.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The Kubernetes configuration is unusable.
    #[error(transparent)]
    Kubernetes(#[from] ClientError),
    /// An address is taken.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// There is no server for metrics.
    #[error(transparent)]
    Metrics(#[from] MetricsServerError),
    /// The certificate for metrics is unusable.
    #[error(transparent)]
    Certificate(#[from] FilesError),
    /// The certificate for metrics could not be made.
    #[error(transparent)]
    SelfSigned(#[from] SelfSignedError),
    /// The program started and then could not go on.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// The settings that each operator's program has.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its name in metrics, events and errors.
    pub name: &'static str,
    /// The name of its lease. `None` if it elects no leader.
    pub lease: Option<&'static str>,
    /// The address of health, and of metrics that have none of their own.
    pub address: Listen,
    /// Where metrics are served, and to whom.
    pub metrics: MetricsOptions,
    /// The kubeconfig file, unless it is that of the pod or of kubectl.
    pub kubeconfig: Option<PathBuf>,
}

/// The parts of a program to which a job adds its own.
pub struct Base {
    /// The manager.
    pub manager: Manager,
    /// The metrics of the framework, and the registry for others.
    pub metrics: Metrics,
    /// A client that writes only while this process leads.
    pub client: Client,
    /// A client that writes on each replica.
    pub client_of_each_replica: Client,
    /// Whether this process leads. `None` if it elects no leader.
    pub leadership: Option<Leadership>,
    /// The events of the program.
    pub events: EventSink,
}

impl Program {
    fn options(&self) -> ClientOptions {
        ClientOptions::default().with(|options| options.kubeconfig.clone_from(&self.kubeconfig))
    }

    /// Makes a client of the API server alone, for a task that ends by itself.
    ///
    /// # Errors
    ///
    /// Returns an error if the Kubernetes configuration is unusable.
    pub async fn client(&self) -> Result<Client, ProgramError> {
        Ok(client::build(&self.options(), Metrics::new(self.name, env!("CARGO_PKG_VERSION")).client()).await?)
    }

    /// Makes the parts. They send nothing to the API server before the manager runs.
    ///
    /// # Errors
    ///
    /// Returns an error if an address is taken, or if the Kubernetes configuration or the certificate of the metrics is unusable.
    pub async fn assemble(self) -> Result<Base, ProgramError> {
        let options = self.options();
        let Self { name, lease, address, metrics: served, kubeconfig: _ } = self;
        let metrics = Metrics::new(name, env!("CARGO_PKG_VERSION"));
        let mut manager = Manager::listen(address, metrics.clone()).await?;
        let client_of_each_replica = client::build(&options, metrics.client()).await?;
        served.serve(&mut manager, &client_of_each_replica).await?;
        let mut client = client_of_each_replica.clone();
        let mut leadership = None;
        if let Some(lease) = lease {
            let elector = Elector::build(&options, &metrics, lease).await?;
            client = elector.leadership().gate(client);
            leadership = Some(elector.leadership());
            manager = manager.leader_election(elector);
        }
        let stopped = manager.stop_tasks().cancelled_owned();
        let (events, publish) = EventSink::new(client_of_each_replica.clone(), name, stopped);
        metrics.register(|registry| events.register(registry));
        manager.stopping_task("events", publish);
        Ok(Base { manager, metrics, client, client_of_each_replica, leadership, events })
    }
}

/// How a program logs.
#[derive(Debug, Clone)]
pub struct Log {
    /// The form of the lines.
    pub format: LogFormat,
    /// The filter of lines where `RUST_LOG` is not set, as in that variable. `None` is `info`.
    pub filter: Option<String>,
}

impl From<LogFormat> for Log {
    fn from(format: LogFormat) -> Self {
        Self { format, filter: None }
    }
}

impl Log {
    fn start(self, settings: &str) -> Result<LogFilter, ProgramError> {
        let filter = telemetry::init(self.format)?;
        if let Some(level) = self.filter.filter(|_| std::env::var_os("RUST_LOG").is_none_or(|filter| filter.is_empty()))
        {
            filter.set(&level)?;
        }
        tracing::info!(version = env!("CARGO_PKG_VERSION"), config = %settings, "starting");
        Ok(filter)
    }
}

/// Runs an operator's program until it is told to stop. An error that no server can mend ends it at once with status 1; a server that is away does not.
///
/// The log begins with `settings`, which must hold no secret.
pub async fn run_program<E>(
    name: &'static str,
    log: Log,
    settings: &str,
    job: impl Future<Output = Result<Manager, E>>,
) -> ExitCode
where
    E: Error + From<ProgramError> + 'static,
{
    let run = async {
        let mut signals = Signals::catch().map_err(ProgramError::from)?;
        let filter = log.start(settings)?;
        // No task runs yet that would have to be ended.
        let Some(job) = signals.until(job).await else { return Ok(()) };
        let mut manager = job?;
        manager.log_filter(filter);
        Ok::<_, E>(manager.run_with(signals).await.map_err(ProgramError::from)?)
    };
    telemetry::exit_code(name, run.await)
}

/// Runs a task that ends by itself, such as the preparation of an uninstall. An error ends it with status 1.
///
/// The log begins with `settings`, which must hold no secret.
pub async fn run_task<E>(
    name: &'static str,
    log: Log,
    settings: &str,
    task: impl Future<Output = Result<(), E>>,
) -> ExitCode
where
    E: Error + From<ProgramError> + 'static,
{
    let run = async {
        let mut signals = Signals::catch().map_err(ProgramError::from)?;
        log.start(settings)?;
        signals.until(task).await.unwrap_or_else(|| Err(ProgramError::from(RunError::Aborted).into()))
    };
    telemetry::exit_code(name, run.await)
}

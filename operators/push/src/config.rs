//! The operator's settings: the original's flags under their names and with their defaults, and ours; each with a variable.

mod log;
mod server;
mod values;
mod vault;

use std::{ffi::OsString, fmt, time::Duration};

use clap::{ArgAction, Args, Command, CommandFactory, Parser, ValueEnum, error::ErrorKind};
use konverge_jobs::{Program, Settings, Shared, go_flags};
use konverge_runtime::{http_server::Listen, watch::namespace};
pub use konverge_vault::environment::AuthMethod;
use konverge_vault::{boundaries::Rule, environment::boolean};

pub use self::{
    log::{LogLevel, LogOptions, ZapEncoder},
    server::ServerOptions,
    vault::VaultOptions,
};
use crate::{
    object::Kind,
    spec::{BinaryPolicy, DeletionPolicy, ExistingPolicy},
};

/// The program's name in metrics, events and errors: that of the original.
pub(crate) const PROGRAM: &str = "vault-sync-operator";

/// The name of the lease: that of the original.
pub(crate) const LEASE: &str = "vault-sync-operator.io";

/// Keeps Vault and OpenBao equal to Kubernetes Secrets, as annotations on workloads and Secrets ask for.
///
/// TLS, the namespace in Vault and the way there are set by the variables of Vault's own programs, such as
/// `VAULT_CACERT`, `VAULT_NAMESPACE` and `VAULT_HTTP_PROXY`. Flags take one dash or two, and a value behind `=` or a blank.
#[derive(Debug, Clone, Parser)]
#[command(name = "vault-sync-operator", disable_version_flag = true, args_override_self = true)]
pub struct Config {
    /// The task of this call
    #[arg(value_enum, default_value_t = Task::Run, hide_default_value = true)]
    pub task: Task,
    /// How Vault is reached
    #[command(flatten)]
    pub vault: VaultOptions,
    /// Objects and policies
    #[command(flatten)]
    pub push: PushOptions,
    /// Where the program serves
    #[command(flatten)]
    pub server: ServerOptions,
    /// How the program logs
    #[command(flatten)]
    pub log: LogOptions,
    /// Print the version
    #[arg(long, default_value = "false", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL", hide_default_value = true)]
    pub version: bool,
}

/// Which objects push where, and what happens to content in Vault.
#[derive(Debug, Clone, Args)]
pub struct PushOptions {
    /// Name of this cluster; all paths begin with clusters/NAME/ then
    #[arg(long, env = "VAULT_SYNC_CLUSTER_NAME", default_value = "", hide_default_value = true, value_parser = values::cluster, value_name = "NAME")]
    pub cluster_name: String,
    /// Name of this installation in marks of ownership [default: the uid of the namespace kube-system]
    #[arg(long, env = "VAULT_SYNC_INSTANCE", value_parser = values::instance, value_name = "NAME")]
    pub instance: Option<String>,
    /// The only namespace to look at [default: all namespaces]
    #[arg(long, env = "VAULT_SYNC_NAMESPACE", value_parser = namespace)]
    pub namespace: Option<String>,
    /// Kinds of objects that the operator watches
    #[arg(long, env = "VAULT_SYNC_KINDS", value_delimiter = ',', default_value = "deployments,statefulsets,daemonsets,cronjobs,jobs,secrets,vaultpushes", value_parser = values::kind)]
    pub kinds: Vec<Kind>,
    /// Which namespaces may write where; may be repeated [default: no restriction]
    ///
    /// The path is that in Vault's API, such as secret/data/{namespace}/*, where {namespace}, {name} and {cluster} are those of the object
    /// and * is one segment, at the end one or more. The namespace may be * for all.
    #[arg(long, env = "VAULT_SYNC_ALLOW_PATH", value_delimiter = ',', value_name = "NAMESPACE=PATH")]
    pub allow_path: Vec<Rule>,
    /// How data that nothing requests any more is deleted, unless the object says it
    #[arg(long, env = "VAULT_SYNC_DEFAULT_DELETION_POLICY", default_value = "soft", value_name = "POLICY")]
    pub default_deletion_policy: DeletionPolicy,
    /// How a path is treated that has content without an owner, unless the object says it
    #[arg(long, env = "VAULT_SYNC_EXISTING", default_value = "adopt", value_name = "POLICY")]
    pub existing: ExistingPolicy,
    /// How a value that is no text is written, where the object does not say
    #[arg(long, env = "VAULT_SYNC_BINARY", default_value = "base64", value_name = "POLICY")]
    pub binary: BinaryPolicy,
    /// How long an object may wait for its deletion while Vault cannot be cleared
    #[arg(long, env = "VAULT_SYNC_FINALIZER_DEADLINE", default_value = "15m", value_parser = values::duration, value_name = "TIME")]
    pub finalizer_deadline: Duration,
    /// The same for an object whose namespace is being deleted
    #[arg(long, env = "VAULT_SYNC_TERMINATING_NAMESPACE_DEADLINE", default_value = "1m", value_parser = values::duration, value_name = "TIME")]
    pub terminating_namespace_deadline: Duration,
    /// How many objects are worked on at the same time
    #[arg(long, env = "VAULT_SYNC_WORKERS", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
}

/// The task of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Task {
    /// Works until it is told to stop.
    Run,
    /// Takes the finalizer off every object and ends, for an uninstall; Vault stays as it is.
    Drain,
}

/// The settings of the command line and the environment. Prints the help or the version if a flag requests it, and an error if there is
/// one. Then it ends the program.
pub fn arguments(arguments: impl IntoIterator<Item = OsString>) -> Config {
    let config = parse(arguments).unwrap_or_else(|error| error.exit());
    if config.version {
        println!("{}", version_line());
        std::process::exit(0);
    }
    config
}

/// Returns the output of `--version`, in the form of the original.
pub fn version_line() -> String {
    format!("vault-sync-operator version {}", konverge_version::line())
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Config, clap::Error> {
    let config = Config::try_parse_from(go_flags::normalised(&Config::command(), arguments))?;
    config.check()?;
    Ok(config)
}

impl Settings for Config {
    const LEASE: &'static str = LEASE;
    const SHARED: Shared = Shared {
        addresses: &["metrics_bind_address", "health_probe_bind_address"],
        of_process: &["log_format", "zap_encoder", "zap_devel", "zap_log_level", "version"],
    };

    fn program(&self) -> Program {
        Program {
            name: PROGRAM,
            lease: self.server.leader_elect.then_some(LEASE),
            address: self.server.health_probe_bind_address,
            metrics: self.server.metrics(),
            kubeconfig: self.server.kubeconfig.clone(),
        }
    }

    fn namespace(&self) -> Option<&str> {
        self.push.namespace.as_deref()
    }

    fn spelled(command: &Command, line: Vec<OsString>) -> Vec<OsString> {
        go_flags::normalised(command, line)
    }

    fn check_as_job(&self) -> Result<(), clap::Error> {
        self.check()?;
        let secured = self.server.metrics_cert_file.is_some() && self.server.metrics_bind_address == Listen::Nowhere;
        let cause = match self.task {
            Task::Drain => "drain is no job but ends; run vault-sync-operator drain",
            Task::Run if secured => {
                "--metrics-cert-file needs --metrics-bind-address beside it: the address that all jobs share speaks plain HTTP"
            }
            Task::Run => return Ok(()),
        };
        Err(Self::command().error(ErrorKind::ArgumentConflict, cause))
    }
}

impl Config {
    /// Returns an error if the login method lacks a setting.
    fn check(&self) -> Result<(), clap::Error> {
        self.vault.check().map_err(|cause| Self::command().error(ErrorKind::MissingRequiredArgument, cause))
    }
}

impl PushOptions {
    /// The cluster's name, if it has one.
    pub fn cluster(&self) -> Option<&str> {
        Some(&*self.cluster_name).filter(|name| !name.is_empty())
    }
}

/// The settings in force, in one line for the log. There is no secret among them.
impl fmt::Display for Config {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, vault, push, server, log, version: _ } = self;
        let task = format!("{task:?}").to_lowercase();
        write!(formatter, "task={task} {vault} {push} {server} log-format={}", log.format().as_str())
    }
}

impl fmt::Display for PushOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Taken apart so that a new setting is not forgotten here.
        let Self {
            cluster_name: _,
            instance,
            namespace,
            kinds,
            allow_path,
            default_deletion_policy,
            existing,
            binary,
            finalizer_deadline,
            terminating_namespace_deadline,
            workers,
        } = self;
        let instance = instance.as_deref().unwrap_or("of the cluster");
        write!(formatter, "cluster-name={} instance={instance} ", self.cluster().unwrap_or("none"))?;
        write!(formatter, "namespace={} ", namespace.as_deref().unwrap_or("all"))?;
        write!(formatter, "kinds={} ", list(kinds.iter().map(|kind| kind.plural()), "none"))?;
        write!(formatter, "allow-path={} ", list(allow_path, "everything"))?;
        write!(formatter, "default-deletion-policy={default_deletion_policy} existing={existing} binary={binary} ")?;
        write!(formatter, "finalizer-deadline={}s ", finalizer_deadline.as_secs_f64())?;
        let deadline = terminating_namespace_deadline.as_secs_f64();
        write!(formatter, "terminating-namespace-deadline={deadline}s workers={workers}")
    }
}

fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>, none: &str) -> String {
    let items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { none.to_owned() } else { items.join(",") }
}

#[cfg(test)]
mod tests;

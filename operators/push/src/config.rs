//! The operator's settings: the original's flags under their names and with their defaults, and ours; each with a variable.

mod log;
mod push;
mod server;
mod values;
mod vault;

use std::{ffi::OsString, fmt};

use clap::{ArgAction, Command, CommandFactory, Parser, ValueEnum, error::ErrorKind};
use konverge_jobs::{Program, Settings, Shared, go_flags};
use konverge_runtime::http_server::Listen;
pub use konverge_vault::environment::AuthMethod;
use konverge_vault::environment::boolean;
use konverge_version::variables;

pub use self::{
    log::{LogOptions, ZapEncoder},
    push::PushOptions,
    server::ServerOptions,
    vault::VaultOptions,
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
    let config = variables::parse_from::<Config>(go_flags::normalised(&Config::command(), arguments))?;
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

/// The settings in force, in one line for the log. There is no secret among them.
impl fmt::Display for Config {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, vault, push, server, log, version: _ } = self;
        let task = format!("{task:?}").to_lowercase();
        write!(formatter, "task={task} {vault} {push} {server} log-format={}", log.format().as_str())
    }
}

#[cfg(test)]
mod tests;

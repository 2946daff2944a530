//! The operator's settings: the original's flags under their names and with their defaults, and ours; each with a variable.

mod address;
mod container;
mod go_flags;
mod shown;
mod values;

use std::{ffi::OsString, num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, ValueEnum, error::ErrorKind};

use konverge_jobs::Shared;
use konverge_runtime::{open_files, telemetry::LogFormat, watch::namespace};
pub use konverge_vault::environment::AuthMethod;
use konverge_vault::{
    boundaries::Rule,
    environment::{Flags, boolean},
};

pub use self::{
    address::Bind,
    values::{LogLevel, ZapEncoder},
};
use crate::{
    object::Kind,
    spec::{BinaryPolicy, DeletionPolicy, ExistingPolicy},
};

/// Keeps Vault and OpenBao equal to Kubernetes Secrets, as annotations on workloads and Secrets ask for.
///
/// TLS, the namespace in Vault and the way there are set by the variables of Vault's own programs, such as
/// `VAULT_CACERT`, `VAULT_NAMESPACE` and `VAULT_HTTP_PROXY`. Flags take one dash or two, and a value behind `=` or a blank.
#[derive(Debug, Clone, Parser)]
#[command(name = "vault-sync-operator", disable_version_flag = true, args_override_self = true)]
pub struct Config {
    /// What to do
    #[arg(value_enum, default_value_t = Task::Run, hide_default_value = true)]
    pub task: Task,

    /// Address of Vault or OpenBao
    #[arg(long, env = "VAULT_ADDR", default_value = "http://vault:8200", value_name = "URL")]
    pub vault_addr: String,
    /// Role to log in as
    #[arg(long, env = "VAULT_ROLE", default_value = "vault-sync-operator")]
    pub vault_role: String,
    /// Mount of the login method, without auth/ [default: kubernetes, or what the method is called]
    #[arg(long, env = "VAULT_AUTH_PATH", value_name = "MOUNT")]
    pub vault_auth_path: Option<String>,
    /// How to log in
    #[arg(long, env = "VAULT_SYNC_VAULT_AUTH_METHOD", default_value = "kubernetes", value_parser = values::auth_method(), value_name = "METHOD")]
    pub vault_auth_method: AuthMethod,
    /// File with a token, for the method token [default: the variable `VAULT_TOKEN`]
    #[arg(long, env = "VAULT_SYNC_VAULT_TOKEN_FILE", value_name = "FILE")]
    pub vault_token_file: Option<PathBuf>,
    /// Id of the role, for the method approle
    #[arg(long, env = "VAULT_SYNC_VAULT_ROLE_ID", hide_env_values = true, value_name = "ID")]
    pub vault_role_id: Option<String>,
    /// File with the secret id, for the method approle
    #[arg(long, env = "VAULT_SYNC_VAULT_SECRET_ID_FILE", value_name = "FILE")]
    pub vault_secret_id_file: Option<PathBuf>,
    /// File with the token to log in with, for the methods kubernetes and jwt [default: that of the pod's service account]
    #[arg(long, env = "VAULT_SYNC_VAULT_JWT_FILE", value_name = "FILE")]
    pub vault_jwt_file: Option<PathBuf>,
    /// The longest time for one request to Vault, limits of ours included
    #[arg(long, env = "VAULT_CLIENT_TIMEOUT", default_value = "60s", value_parser = values::timeout, value_name = "TIME")]
    pub vault_timeout: Duration,
    /// Requests to Vault in a second; 0 is no limit [default: that of `VAULT_RATE_LIMIT`, else 500]
    #[arg(long, env = "VAULT_SYNC_VAULT_RATE", value_name = "NUMBER")]
    pub vault_rate: Option<u32>,
    /// Requests to Vault at the same time
    #[arg(long, env = "VAULT_SYNC_VAULT_CONCURRENCY", default_value = "32", value_name = "NUMBER")]
    pub vault_concurrency: NonZeroUsize,

    /// Name of this cluster; all paths begin with clusters/NAME/ then
    #[arg(long, env = "VAULT_SYNC_CLUSTER_NAME", default_value = "", hide_default_value = true, value_parser = values::cluster, value_name = "NAME")]
    pub cluster_name: String,
    /// Name of this installation in marks of ownership [default: the uid of the namespace kube-system]
    #[arg(long, env = "VAULT_SYNC_INSTANCE", value_parser = values::instance, value_name = "NAME")]
    pub instance: Option<String>,
    /// The only namespace to look at [default: all namespaces]
    #[arg(long, env = "VAULT_SYNC_NAMESPACE", value_parser = namespace)]
    pub namespace: Option<String>,
    /// Kinds of objects that take part
    #[arg(long, env = "VAULT_SYNC_KINDS", value_delimiter = ',', default_value = "deployments,statefulsets,daemonsets,cronjobs,jobs,secrets,vaultpushes", value_parser = values::kind)]
    pub kinds: Vec<Kind>,
    /// Which namespaces may write where; may be repeated [default: no restriction]
    ///
    /// The path is that in Vault's API, such as secret/data/{namespace}/*, where {namespace}, {name} and {cluster} are those of the object
    /// and * is one segment, at the end one or more. The namespace may be * for all.
    #[arg(long, env = "VAULT_SYNC_ALLOW_PATH", value_delimiter = ',', value_name = "NAMESPACE=PATH")]
    pub allow_path: Vec<Rule>,
    /// What becomes of data that is no longer asked for, where the object does not say
    #[arg(long, env = "VAULT_SYNC_DEFAULT_DELETION_POLICY", default_value = "soft", value_name = "POLICY")]
    pub default_deletion_policy: DeletionPolicy,
    /// What becomes of a path that holds something and is nobody's, where the object does not say
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

    /// Where /metrics is served; 0 is nowhere
    #[arg(long, env = "VAULT_SYNC_METRICS_BIND_ADDRESS", default_value = ":8080", value_parser = address::metrics, value_name = "ADDRESS")]
    pub metrics_bind_address: Bind,
    /// Show metrics only to who may get them by the roles of the cluster
    #[arg(long, env = "VAULT_SYNC_ENABLE_METRICS_AUTH", default_value = "true", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL")]
    pub enable_metrics_auth: bool,
    /// Certificate with which metrics are served over TLS, in PEM
    #[arg(long, env = "VAULT_SYNC_METRICS_CERT_FILE", requires = "metrics_key_file", value_name = "FILE")]
    pub metrics_cert_file: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, env = "VAULT_SYNC_METRICS_KEY_FILE", requires = "metrics_cert_file", value_name = "FILE")]
    pub metrics_key_file: Option<PathBuf>,
    /// Where /healthz and /readyz are served; 0 is nowhere
    #[arg(long, env = "VAULT_SYNC_HEALTH_PROBE_BIND_ADDRESS", default_value = ":8081", value_parser = address::health, value_name = "ADDRESS")]
    pub health_probe_bind_address: Bind,
    /// Let one of several replicas work while the others stand by
    #[arg(long, env = "VAULT_SYNC_LEADER_ELECT", default_value = "false", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL")]
    pub leader_elect: bool,
    /// Kubeconfig file [default: the pod's service account, else what kubectl uses]
    #[arg(long, env = "VAULT_SYNC_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Form of the log lines; how many there are is up to `RUST_LOG` [default: text, or as zap-encoder or zap-devel say]
    #[arg(long, env = "VAULT_SYNC_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// As with the original: json is --log-format=json
    #[arg(long, value_name = "ENCODER")]
    pub zap_encoder: Option<ZapEncoder>,
    /// As with the original: false is --log-format=json
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL")]
    pub zap_devel: Option<bool>,
    /// As with the original: the lowest level that is logged, unless `RUST_LOG` says
    #[arg(long, value_name = "LEVEL")]
    pub zap_log_level: Option<LogLevel>,
    /// Taken and without effect: there are no stack traces
    #[arg(long, value_name = "LEVEL", hide = true)]
    pub zap_stacktrace_level: Option<String>,
    /// Taken and without effect: times are those of RFC 3339
    #[arg(long, value_name = "ENCODING", hide = true)]
    pub zap_time_encoding: Option<String>,

    /// Print the version
    #[arg(long, default_value = "false", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL", hide_default_value = true)]
    pub version: bool,
}

/// What the program is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Task {
    /// Works until it is told to stop.
    Run,
    /// Takes the finalizer off every object and ends, for an uninstall; Vault stays as it is.
    Drain,
}

/// The settings of the command line and the environment. Prints what is asked for (help, version) or what is wrong, and ends
/// the program then.
pub fn arguments(arguments: impl IntoIterator<Item = OsString>) -> Config {
    let config = parse(arguments).unwrap_or_else(|error| error.exit());
    if config.version {
        println!("{}", version_line());
        std::process::exit(0);
    }
    config
}

/// What `--version` prints: the form of the original.
pub fn version_line() -> String {
    format!("vault-sync-operator version {}", konverge_version::line())
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Config, clap::Error> {
    let config = Config::try_parse_from(go_flags::normalised(&Config::command(), arguments))?;
    config.check().map_err(|cause| Config::command().error(ErrorKind::MissingRequiredArgument, cause))?;
    Ok(config)
}

/// What is another matter where push is one of several jobs.
const SHARED: Shared = Shared {
    addresses: &["metrics_bind_address", "health_probe_bind_address"],
    of_process: &["log_format", "zap_encoder", "zap_devel", "zap_log_level", "version"],
};

/// The settings of one of several jobs, from a line that begins with its name.
pub fn of_job(line: impl IntoIterator<Item = OsString>) -> Result<Config, clap::Error> {
    let matches = SHARED.matches("push", Config::command(), go_flags::normalised(&Config::command(), line))?;
    let config = Config::from_arg_matches(&matches)?;
    config.check().map_err(|cause| Config::command().error(ErrorKind::MissingRequiredArgument, cause))?;
    let secured = config.metrics_cert_file.is_some() && config.metrics_bind_address.0.is_none();
    let cause = match config.task {
        Task::Drain => "drain is no job but ends; run vault-sync-operator drain",
        Task::Run if secured => {
            "--metrics-cert-file needs --metrics-bind-address beside it: the address that all jobs share speaks plain HTTP"
        }
        Task::Run => return Ok(config),
    };
    Err(Config::command().error(ErrorKind::ArgumentConflict, cause))
}

impl Config {
    /// What one setting demands of another.
    fn check(&self) -> Result<(), String> {
        match self.vault_auth_method {
            AuthMethod::AppRole if self.vault_role_id.is_none() => {
                Err("--vault-auth-method=approle needs --vault-role-id".to_owned())
            }
            AuthMethod::Token if self.vault_token_file.is_none() && std::env::var_os("VAULT_TOKEN").is_none() => {
                Err("--vault-auth-method=token needs --vault-token-file or the variable VAULT_TOKEN".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Who can read along that metrics are read: their tokens may do more in the cluster than that. Nothing if nobody can.
    pub fn readable_metrics(&self) -> Option<String> {
        let leaves_the_machine = self.metrics_bind_address.0.is_some_and(|address| !address.ip().is_loopback());
        let is_readable = leaves_the_machine && self.enable_metrics_auth && self.metrics_cert_file.is_none();
        is_readable.then(|| {
            "whoever reads /metrics sends a token of the cluster, and without TLS it can be read on the way; give \
             --metrics-cert-file and --metrics-key-file, or serve metrics on this machine alone"
                .to_owned()
        })
    }

    /// Where the login method is mounted, without `auth/`.
    pub fn auth_path(&self) -> &str {
        let given = self.vault_auth_path.as_deref().filter(|path| !path.is_empty());
        given.unwrap_or(self.vault_auth_method.name())
    }

    /// What the flags say about Vault.
    pub fn vault(&self) -> Flags {
        Flags {
            address: self.vault_addr.clone(),
            address_from: "--vault-addr",
            method: self.vault_auth_method,
            mount: self.auth_path().to_owned(),
            role: self.vault_role.clone(),
            token_file: self.vault_token_file.clone(),
            role_id: self.vault_role_id.clone(),
            secret_id_file: self.vault_secret_id_file.clone(),
            jwt_file: self.vault_jwt_file.clone(),
            timeout: self.vault_timeout,
            rate: self.vault_rate,
            concurrency: self.vault_concurrency.min(open_files::for_one_server()),
        }
    }

    /// The cluster's name, if it has one.
    pub fn cluster(&self) -> Option<&str> {
        Some(&*self.cluster_name).filter(|name| !name.is_empty())
    }

    /// The form of the log lines: the original's flags count where ours is not given.
    pub fn log_format(&self) -> LogFormat {
        self.log_format.unwrap_or(match (self.zap_encoder, self.zap_devel) {
            (Some(ZapEncoder::Json), _) | (None, Some(false)) => LogFormat::Json,
            _ => LogFormat::Text,
        })
    }

    /// The filter of log lines that the original's flag asks for; to be used unless `RUST_LOG` is set.
    pub fn log_filter(&self) -> Option<String> {
        self.zap_log_level.map(LogLevel::filter)
    }
}

#[cfg(test)]
mod tests;

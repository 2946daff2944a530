//! The operator's flags: the original's under their names and with their defaults, and ours.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt,
    net::SocketAddr,
    num::NonZeroU32,
    path::PathBuf,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use clap::{ArgAction, Command, CommandFactory, Parser, ValueEnum, error::ErrorKind};
use konverge::{LogFormat, Options, runtime::http_server::Listen};
use konverge_core::{SecretValue, allow::Rule, deletion_guard::DeletionBudget};
use konverge_jobs::{MetricsOptions, Program, Settings as JobSettings, Shared, go_flags};
use konverge_openzro::{ConfigError, Credential, Limits, OpenZro, OpenZroConfig, TlsSettings};
use konverge_version::variables;

use crate::{
    account::Account,
    metrics::Metrics,
    settings::{Settings, TERMINATING_NAMESPACE_DEADLINE},
};

konverge_jobs::metrics_flags!("OPENZRO", default "0");

/// The program's name in metrics, events and as a field manager: that of the original.
pub const PROGRAM: &str = "openzro-operator";
/// The name of the lease: that of the original.
pub(crate) const LEASE: &str = "operator.openzro.io";
/// The longest list of an account: some thousands of peers are in the list of groups.
const LONGEST_ANSWER: usize = 64 * 1024 * 1024;

/// The default rules: the names of a namespace begin with its name and a character that no namespace contains.
const DEFAULT_RULES: [&str; 3] = ["*={namespace}", "*={namespace}/*", "*={namespace} *"];

/// Keeps openZro as custom resources of Kubernetes say.
///
/// The flags are those of openzro-operator. Flags of ours are marked. Flags take one dash or two, and a value behind `=` or a blank.
#[derive(Clone, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(name = "openzro-operator", version = konverge_version::line(), args_override_self = true)]
pub struct Config {
    /// The task
    #[arg(value_enum, default_value_t = Task::Run, hide_default_value = true)]
    pub task: Task,
    /// The namespace of the operator [default: that of the pod or of the kubeconfig]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    pub runtime_namespace: Option<String>,
    /// Address of the management server
    #[arg(long, default_value = "https://api.openzro.io", value_name = "URL")]
    pub openzro_management_url: String,
    /// Image of routing peers and sidecars
    #[arg(long, default_value = "openzro/openzro:latest", value_name = "IMAGE")]
    pub openzro_client_image: String,
    /// Name of the cluster, which its network in openZro has
    #[arg(long, default_value = "kubernetes", value_name = "NAME")]
    pub cluster_name: String,
    /// Give each namespace a network of its own
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub namespaced_networks: bool,
    /// Domain of Services in the cluster
    #[arg(long, default_value = "svc.cluster.local", value_name = "DOMAIN")]
    pub cluster_dns: String,
    /// Personal access token; others can read it in the list of processes, so prefer --openzro-api-key-file or the variable
    #[arg(long, env = "OZ_API_KEY", hide_env_values = true, value_name = "TOKEN")]
    pub openzro_api_key: Option<ApiKey>,
    /// File with the personal access token, which is read again when it changes (ours)
    #[arg(long, env = "OZ_API_KEY_FILE", value_name = "FILE")]
    pub openzro_api_key_file: Option<PathBuf>,
    /// File or folder with authorities that the certificate of the management server may come from, besides those of the system; read again when it
    /// changes (ours)
    #[arg(long, env = "OPENZRO_CA_FILE", value_name = "FILE")]
    pub openzro_ca_file: Option<PathBuf>,
    /// A namespace with an account of its own, the file with its token, and the address of its server if it is another one. May be repeated, such as
    /// shop=/etc/openzro-shop/token,<https://openzro.shop.example.com> (ours)
    #[arg(long = "account", value_name = "NAMESPACE=FILE[,URL]")]
    pub accounts: Vec<Tenant>,
    /// Let resources create the policies that they name
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub allow_automatic_policy_creation: bool,
    /// Labels of all objects that the operator creates, such as team=net,tier=infra
    #[arg(long, default_value = "", value_parser = labels, value_name = "LABELS")]
    pub default_labels: Labels,
    /// Serve the Gateway API: gateways with their routes of HTTP and TCP
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub gateway_api_enabled: bool,
    /// Where metrics are served, and to whom
    #[command(flatten)]
    pub metrics: MetricsFlags,
    /// Where /healthz and /readyz are served; 0 is nowhere
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    pub health_probe_bind_address: Listen,
    /// Let one of several replicas work while the others stand by
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub leader_elect: bool,
    /// Folder with the certificate of the webhooks [default: one that the operator makes]
    #[arg(long, value_name = "FOLDER")]
    pub webhook_cert_path: Option<PathBuf>,
    /// File of the certificate in that folder
    #[arg(long, default_value = "tls.crt", value_name = "FILE")]
    pub webhook_cert_name: String,
    /// File of the key in that folder
    #[arg(long, default_value = "tls.key", value_name = "FILE")]
    pub webhook_cert_key: String,
    /// Answer the API server's webhooks
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", action = ArgAction::Set)]
    pub enable_webhooks: bool,
    /// Where the API server's webhooks are answered (ours)
    #[arg(long, env = "OPENZRO_WEBHOOK_BIND_ADDRESS", default_value = "0.0.0.0:9443", value_name = "ADDRESS")]
    pub webhook_bind_address: SocketAddr,
    /// PEM file with the CAs of the API server's client certificate; the webhooks then answer no other caller [default: every caller, with refusals
    /// that name no other objects] (ours)
    #[arg(long, env = "OPENZRO_WEBHOOK_CLIENT_CA", value_name = "FILE")]
    pub webhook_client_ca: Option<PathBuf>,
    /// Kubeconfig file [default: the pod's service account, else what kubectl uses]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Form of the log lines: console or json; how many there are is up to `RUST_LOG`
    #[arg(long, default_value = "console", value_name = "FORM")]
    pub zap_encoder: Encoder,
    /// Accepted and without effect
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", hide = true)]
    pub zap_devel: Option<String>,
    /// Accepted and without effect: `RUST_LOG` has the level
    #[arg(long, hide = true)]
    pub zap_log_level: Option<String>,
    /// Accepted and without effect
    #[arg(long, hide = true)]
    pub zap_stacktrace_level: Option<String>,
    /// Accepted and without effect
    #[arg(long, hide = true)]
    pub zap_time_encoding: Option<String>,

    /// How often each collection of the account is read, in seconds: a change by hand is corrected within this time (ours)
    #[arg(long, env = "OPENZRO_INTERVAL", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    pub interval: u64,
    /// How many requests per second the management server gets in the long run (ours)
    #[arg(long, env = "OPENZRO_REQUESTS_PER_SECOND", default_value = "20", value_name = "NUMBER")]
    pub requests_per_second: NonZeroU32,
    /// Names of groups, networks, network resources and policies in openZro that a namespace may use, and of `NetworkRouter`s as namespace/name. May
    /// be repeated; * matches anything, {namespace} the namespace of the object. The operator's own namespace may use all [default: names that begin
    /// with the namespace, as in team-a/devs; everything with --openzro-api-key or its variable] (ours)
    #[arg(long, env = "OPENZRO_ALLOW", value_delimiter = ',', value_name = "NAMESPACE=PATTERN")]
    pub allow: Vec<Rule>,
    /// Let objects of all namespaces use privileged containers, volumes, pod templates, images, variables, Secrets and more privileges of sidecars,
    /// and the exemption from admission checks (ours)
    #[arg(long, env = "OPENZRO_ALLOW_PRIVILEGED_ROUTING")]
    pub allow_privileged_routing: bool,
    /// Let objects of this namespace do what --allow-privileged-routing permits. May be repeated (ours)
    #[arg(
        long = "privileged-namespace",
        env = "OPENZRO_PRIVILEGED_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMESPACE"
    )]
    pub privileged_namespaces: Vec<String>,
    /// Seconds that an object in a namespace that is being deleted waits for its items in openZro (ours)
    #[arg(long, env = "OPENZRO_TERMINATING_NAMESPACE_DEADLINE", default_value_t = TERMINATING_NAMESPACE_DEADLINE, value_name = "SECONDS")]
    pub terminating_namespace_deadline: u64,
    /// Delete adopted groups and networks with their objects, as the original does (ours)
    #[arg(long, env = "OPENZRO_DELETE_ADOPTED")]
    pub delete_adopted: bool,
    /// Delete in openZro without approval, however many objects are deleted (ours)
    #[arg(long, env = "OPENZRO_ALLOW_DELETES", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL")]
    pub allow_deletes: bool,
    /// The share of all objects in percent that one namespace may delete within five minutes without approval; at least five objects, and at
    /// most a hundred (ours)
    #[arg(long, env = "OPENZRO_DELETION_SHARE", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "PERCENT")]
    pub deletion_share: u8,
    /// The name that tells this cluster from others on the same account, in marks [default: the uid of the namespace kube-system] (ours)
    #[arg(long, env = "OPENZRO_CLUSTER_ID", value_name = "ID")]
    pub cluster_id: Option<String>,
    /// Say what would be written, and write nothing (ours)
    #[arg(long, env = "OPENZRO_DRY_RUN")]
    pub dry_run: bool,
}

/// The task of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Task {
    /// Works until it is told to stop.
    Run,
    /// Takes the finalizers off every object and ends, for an uninstall; openZro stays as it is.
    Drain,
}

/// A personal access token in a setting. It has no `Debug` and no `Display`.
#[derive(Clone)]
pub struct ApiKey(Arc<SecretValue>);

impl From<String> for ApiKey {
    fn from(text: String) -> Self {
        Self(Arc::new(SecretValue::from(text)))
    }
}

/// A namespace with an account of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    namespace: String,
    token: PathBuf,
    url: Option<String>,
}

impl FromStr for Tenant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is no account; write NAMESPACE=FILE or NAMESPACE=FILE,URL");
        let (namespace, rest) = text.split_once('=').ok_or_else(invalid)?;
        let (token, url) = rest.split_once(',').map_or((rest, None), |(token, url)| (token, Some(url)));
        if namespace.is_empty() || token.is_empty() || url == Some("") {
            return Err(invalid());
        }
        Ok(Self { namespace: namespace.to_owned(), token: token.into(), url: url.map(str::to_owned) })
    }
}

/// Labels of a flag.
pub type Labels = BTreeMap<String, String>;

/// The form of log lines, as zap names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Encoder {
    /// Text.
    Console,
    /// JSON.
    Json,
}

/// Reads `k=v,k=v`. The chart of the original renders blanks after the commas and quotes around the whole.
fn labels(text: &str) -> Result<Labels, String> {
    let text = text.trim().trim_matches(['"', '\'']);
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is no label; write name=value"))?;
        let (name, value) = (name.trim(), value.trim());
        let of = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        let is_name = !name.is_empty() && name.splitn(2, '/').all(|part| !part.is_empty() && of(part));
        if is_name && of(value) && value.len() <= 63 {
            Ok((name.to_owned(), value.to_owned()))
        } else {
            Err(format!("{pair:?} is no label that Kubernetes accepts; correct --default-labels"))
        }
    };
    pairs.map(read).collect()
}

impl JobSettings for Config {
    const LEASE: &'static str = LEASE;
    const SHARED: Shared =
        Shared { addresses: &["health_probe_bind_address", "metrics_bind_address"], of_process: &["zap_encoder"] };

    fn program(&self) -> Program {
        Program {
            name: PROGRAM,
            lease: self.leader_elect.then_some(LEASE),
            address: self.health_probe_bind_address,
            metrics: self.metrics.options(),
            kubeconfig: self.kubeconfig.clone(),
        }
    }

    fn namespace(&self) -> Option<&str> {
        None
    }

    fn spelled(command: &Command, line: Vec<OsString>) -> Vec<OsString> {
        go_flags::normalised(command, line)
    }

    fn check_as_job(&self) -> Result<(), clap::Error> {
        match self.task {
            Task::Run => Ok(()),
            Task::Drain => {
                let cause = "drain is no job but ends; run openzro-operator drain";
                Err(Self::command().error(ErrorKind::ArgumentConflict, cause))
            }
        }
    }
}

impl Config {
    /// The settings of the command line and the environment. Prints the help or the version if a flag requests it, and an error if there is one. Then it
    /// ends the program.
    pub fn of_line(line: impl IntoIterator<Item = OsString>) -> Self {
        variables::parse_from(go_flags::normalised(&Self::command(), line)).unwrap_or_else(|error| error.exit())
    }

    /// The account, or `None` without a token. Nothing is sent.
    pub fn account(&self, metrics: &Metrics) -> Result<Option<Account>, ConfigError> {
        let credential = match (&self.openzro_api_key_file, &self.openzro_api_key) {
            (Some(path), _) => Credential::file(path.clone()),
            (None, Some(ApiKey(key))) if !key.is_empty() => Credential::value(SecretValue::new(key.expose().to_vec())),
            (None, _) => return Ok(None),
        };
        let client = |scope: &str, url: &str, credential| {
            let client = self.client(url, credential, metrics)?;
            metrics.watch(scope, &client);
            Ok::<_, ConfigError>(client)
        };
        let mut others = BTreeMap::new();
        for tenant in &self.accounts {
            let (namespace, credential) = (&tenant.namespace, Credential::file(tenant.token.clone()));
            others.insert(namespace.clone(), Account::new(client(namespace, &self.url_of(tenant), credential)?));
        }
        Ok(Some(Account::with_others(client("", &self.openzro_management_url, credential)?, others)))
    }

    /// The client of one account. Each has limits and a breaker of its own, so that an account whose server is away delays no other.
    fn client(&self, url: &str, credential: Credential, metrics: &Metrics) -> Result<OpenZro, ConfigError> {
        let limits = Limits::default().with(|limits| {
            limits.rate = Some(self.requests_per_second);
            limits.burst = self.requests_per_second;
            limits.answer = LONGEST_ANSWER;
        });
        let config = OpenZroConfig::new(url, credential)?;
        if config.is_in_the_clear() {
            tracing::warn!(
                server = url,
                "the token goes to another machine without TLS, so everybody on the way can read it; use https://"
            );
        }
        let tls = TlsSettings::default().with(|tls| tls.authorities.clone_from(&self.openzro_ca_file));
        Ok(OpenZro::new(&config.limits(limits).tls(tls).observer(metrics.observer())))
    }

    fn url_of(&self, tenant: &Tenant) -> String {
        tenant.url.as_ref().unwrap_or(&self.openzro_management_url).clone()
    }

    /// Returns the settings that decide what objects mean.
    pub fn settings(&self) -> Settings {
        Settings {
            cluster_name: self.cluster_name.clone(),
            namespaced_networks: self.namespaced_networks,
            cluster_dns: self.cluster_dns.clone(),
            management_url: self.openzro_management_url.clone(),
            client_image: self.openzro_client_image.clone(),
            default_labels: self.default_labels.clone(),
            creates_policies: self.allow_automatic_policy_creation,
            deletes_adopted: self.delete_adopted,
            namespace: self.runtime_namespace.clone().unwrap_or_default(),
            accounts: self.accounts.iter().map(|tenant| (tenant.namespace.clone(), self.url_of(tenant))).collect(),
            rules: self.rules(),
            privileged: self.privileged(),
            terminating_namespace_deadline: Duration::from_secs(self.terminating_namespace_deadline),
        }
    }

    /// Returns `true` if the operator is started as the original: without a flag for rules, and with the token in `OZ_API_KEY` or its flag. It then
    /// confines no namespace.
    fn is_started_as_original(&self) -> bool {
        self.allow.is_empty() && self.openzro_api_key_file.is_none()
    }

    fn rules(&self) -> Option<Vec<Rule>> {
        if self.is_started_as_original() {
            return None;
        }
        let defaults = || DEFAULT_RULES.iter().filter_map(|rule| rule.parse().ok()).collect();
        Some(if self.allow.is_empty() { defaults() } else { self.allow.clone() })
    }

    /// Returns the namespaces whose objects may use privileged containers and the like; `None` for all.
    fn privileged(&self) -> Option<BTreeSet<String>> {
        let is_open = self.is_started_as_original() && self.privileged_namespaces.is_empty();
        if self.allow_privileged_routing || is_open {
            return None;
        }
        Some(self.privileged_namespaces.iter().chain(&self.runtime_namespace).cloned().collect())
    }

    /// Returns the missing rules, one sentence for each power that every writer of an object has, as with the original.
    pub(crate) fn open(&self) -> Vec<&'static str> {
        let is_open = self.is_started_as_original();
        let names = is_open.then_some(
            "no --allow rule: the objects of every namespace may use every group, network and policy of the account; \
             --allow='*={namespace}/*' gives each namespace names of its own",
        );
        let privileged = self.privileged().is_none().then_some(
            "privileged containers, volumes, pod templates and images: the objects of every namespace may have the operator create them; \
             --privileged-namespace, without --allow-privileged-routing, limits this to some namespaces",
        );
        let adopted = self.delete_adopted.then_some(
            "--delete-adopted: groups and networks that others made are deleted with the object that adopted them",
        );
        names.into_iter().chain(privileged).chain(adopted).collect()
    }

    /// The settings of the framework.
    pub fn options(&self) -> Options {
        Options::default().with(|options| {
            options.kubeconfig.clone_from(&self.kubeconfig);
            options.server.address = self.health_probe_bind_address;
            let MetricsOptions { address, authentication, tls, certificate } = self.metrics.options();
            options.server.metrics.address = address;
            options.server.metrics.authentication = authentication;
            options.server.metrics.tls = tls;
            if let Some((certificate, key)) = certificate {
                options.server.metrics.tls = true;
                options.server.metrics.certificate = Some(certificate);
                options.server.metrics.key = Some(key);
            }
            options.leader_election = self.leader_elect;
            options.lease_namespace.clone_from(&self.runtime_namespace);
            options.lease_name = Some(LEASE.to_owned());
            options.dry_run = self.dry_run;
            // A definition that is missing makes the program unready, and keeps the objects of other kinds from nothing.
            options.cache_sync_timeout = 0;
            options.log_format = self.log_format();
            options.webhook.address = self.webhook_bind_address;
            options.webhook.client_ca.clone_from(&self.webhook_client_ca);
            if let Some(folder) = &self.webhook_cert_path {
                options.webhook.certificate = Some(folder.join(&self.webhook_cert_name));
                options.webhook.key = Some(folder.join(&self.webhook_cert_key));
            }
        })
    }

    /// The form of log lines.
    pub fn log_format(&self) -> LogFormat {
        match self.zap_encoder {
            Encoder::Console => LogFormat::Text,
            Encoder::Json => LogFormat::Json,
        }
    }

    /// How many objects may be deleted without approval. `None` if all may.
    pub(crate) fn deletion_budget(&self) -> Option<DeletionBudget> {
        (!self.allow_deletes).then(|| DeletionBudget { percent: self.deletion_share, ..DeletionBudget::default() })
    }

    /// How the lists of the account are read.
    pub fn remote(&self) -> konverge::remote::Settings {
        konverge::remote::Settings::default().with(|settings| {
            settings.cluster.clone_from(&self.cluster_id);
            settings.interval = Duration::from_secs(self.interval);
        })
    }
}

/// The settings in force, in one line. The token is not among them.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_default = |text: Option<&str>| text.unwrap_or("default").to_owned();
        let labels: Vec<_> = self.default_labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let path = |path: &Option<PathBuf>| path.as_ref().map_or("none".to_owned(), |path| path.display().to_string());
        write!(f, "runtime-namespace={} ", or_default(self.runtime_namespace.as_deref()))?;
        write!(f, "openzro-management-url={} ", self.openzro_management_url)?;
        write!(f, "openzro-client-image={} ", self.openzro_client_image)?;
        write!(f, "cluster-name={} namespaced-networks={} ", self.cluster_name, self.namespaced_networks)?;
        write!(f, "cluster-dns={} openzro-api-key={} ", self.cluster_dns, self.openzro_api_key.is_some())?;
        write!(f, "openzro-api-key-file={} ", path(&self.openzro_api_key_file))?;
        write!(f, "openzro-ca-file={} ", path(&self.openzro_ca_file))?;
        let accounts: Vec<_> = self.accounts.iter().map(|tenant| tenant.namespace.as_str()).collect();
        write!(f, "accounts={} ", accounts.join(","))?;
        write!(f, "allow-automatic-policy-creation={} ", self.allow_automatic_policy_creation)?;
        write!(f, "default-labels={} gateway-api-enabled={} ", labels.join(","), self.gateway_api_enabled)?;
        write!(f, "{} ", self.metrics.options())?;
        write!(f, "health-probe-bind-address={} ", self.health_probe_bind_address)?;
        write!(f, "leader-elect={} webhook-cert-path={} ", self.leader_elect, path(&self.webhook_cert_path))?;
        write!(f, "webhook-bind-address={} ", self.webhook_bind_address)?;
        write!(f, "webhook-client-ca={} ", path(&self.webhook_client_ca))?;
        write!(f, "enable-webhooks={} kubeconfig={} ", self.enable_webhooks, path(&self.kubeconfig))?;
        write!(f, "interval={}s requests-per-second={} ", self.interval, self.requests_per_second)?;
        write!(f, "delete-adopted={} cluster-id={} ", self.delete_adopted, or_default(self.cluster_id.as_deref()))?;
        let rules = self.rules().map_or_else(
            || "everything".to_owned(),
            |rules| rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        );
        let privileged = self
            .privileged()
            .map_or_else(|| "all".to_owned(), |namespaces| namespaces.into_iter().collect::<Vec<_>>().join(","));
        write!(f, "allow={rules} privileged-namespaces={privileged} ")?;
        write!(f, "terminating-namespace-deadline={}s ", self.terminating_namespace_deadline)?;
        write!(f, "allow-deletes={} deletion-share={} ", self.allow_deletes, self.deletion_share)?;
        write!(f, "dry-run={}", self.dry_run)
    }
}

#[cfg(test)]
mod tests {
    use konverge_core::error::Classify;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Config, clap::Error> {
        Config::try_parse_from([&["openzro-operator"], arguments].concat())
    }

    #[test]
    fn the_flags_of_the_original_have_their_defaults() {
        let config = parse(&[]).ok().unwrap();
        assert_eq!(config.openzro_management_url, "https://api.openzro.io");
        assert_eq!(config.openzro_client_image, "openzro/openzro:latest");
        assert_eq!((&*config.cluster_name, &*config.cluster_dns), ("kubernetes", "svc.cluster.local"));
        assert!(!config.namespaced_networks && !config.allow_automatic_policy_creation && !config.gateway_api_enabled);
        assert_eq!(config.metrics.metrics_bind_address, Some(Listen::Nowhere));
        assert!(!config.metrics.enable_metrics_auth);
        assert_eq!(config.health_probe_bind_address.to_string(), "[::]:8081");
        assert!(!config.leader_elect && config.enable_webhooks && config.webhook_cert_path.is_none());
        assert_eq!((&*config.webhook_cert_name, &*config.webhook_cert_key), ("tls.crt", "tls.key"));
        assert!(config.default_labels.is_empty());
    }

    #[test]
    fn flags_are_taken_as_go_takes_them() {
        let given = ["-leader-elect", "-cluster-name", "prod", "-enable-webhooks=false", "-zap-devel", "drain"];
        for config in [
            Config::of_line(["openzro-operator"].iter().chain(&given).map(OsString::from)),
            Config::of_container(&given.map(str::to_owned), &BTreeMap::new()).ok().unwrap(),
        ] {
            assert!(config.leader_elect && !config.enable_webhooks);
            assert_eq!((&*config.cluster_name, config.task), ("prod", Task::Drain));
        }
    }

    #[test]
    fn the_arguments_of_the_originals_chart_are_understood() {
        let config = parse(&[
            "--metrics-bind-address=:8080",
            "--leader-elect",
            "--health-probe-bind-address=:8081",
            "--webhook-cert-path=/tmp/k8s-webhook-server/serving-certs",
            "--cluster-name=prod",
            "--cluster-dns=svc.cluster.local",
            "--namespaced-networks=false",
            "--allow-automatic-policy-creation=true",
            "--enable-webhooks=true",
            "--default-labels=\"a=b, c=d\"",
            "--openzro-api-key=nbp_hunter2",
            "--zap-log-level=debug",
            "--zap-devel",
            "--gateway-api-enabled",
        ]);
        let config = config.map_err(|error| error.to_string()).ok().unwrap();
        assert!(config.leader_elect && config.allow_automatic_policy_creation && config.gateway_api_enabled);
        assert_eq!(config.default_labels, [("a", "b"), ("c", "d")].map(|(n, v)| (n.to_owned(), v.to_owned())).into());
        let options = config.options();
        assert_eq!((options.leader_election, options.lease_name.as_deref()), (true, Some("operator.openzro.io")));
        assert!(config.account(&Metrics::default()).unwrap().is_some());
    }

    #[test]
    fn a_start_as_the_originals_confines_nobody_and_says_so_and_any_other_start_confines() {
        for (arguments, rules, privileged, open) in [
            (&["--openzro-api-key=k"][..], None, None, 2),
            (&["--openzro-api-key=k", "--privileged-namespace=net"], None, Some(1), 1),
            (&["--openzro-api-key-file=/t"], Some(3), Some(0), 0),
            (&["--openzro-api-key=k", "--allow=a=b,c=d"], Some(2), Some(0), 0),
            (&["--openzro-api-key-file=/t", "--allow=*=*", "--allow-privileged-routing"], Some(1), None, 1),
            (
                &["--openzro-api-key-file=/t", "--privileged-namespace=net", "--runtime-namespace=o"],
                Some(3),
                Some(2),
                0,
            ),
        ] {
            let config = parse(arguments).map_err(|error| error.to_string()).unwrap();
            let settings = config.settings();
            assert_eq!(settings.rules.map(|rules| rules.len()), rules, "{arguments:?}");
            assert_eq!(settings.privileged.map(|namespaces| namespaces.len()), privileged, "{arguments:?}");
            assert_eq!(config.open().len(), open, "{arguments:?}");
        }
        assert!(parse(&["--allow=team-a"]).is_err());
    }

    #[test]
    fn w11_no_token_is_shown() {
        let config = parse(&["--openzro-api-key=hunter2"]).ok().unwrap();
        assert!(!config.to_string().contains("hunter2") && config.to_string().contains("openzro-api-key=true"));
        assert!(parse(&["--openzro-api-key="]).ok().unwrap().account(&Metrics::default()).unwrap().is_none());
    }

    #[tokio::test]
    async fn authorities_of_a_file_reach_the_client_of_each_account() {
        let config = parse(&[
            "--openzro-management-url=https://127.0.0.1:1",
            "--openzro-api-key=k",
            "--openzro-ca-file=/nowhere/ca.crt",
            "--account=a=/t/a",
        ]);
        let config = config.map_err(|error| error.to_string()).unwrap();
        assert!(config.to_string().contains("openzro-ca-file=/nowhere/ca.crt"));
        let account = config.account(&Metrics::default()).unwrap().unwrap();
        let failure = account.networks().await.unwrap_err();
        assert!(failure.to_string().contains("/nowhere/ca.crt"), "{failure}");
        assert_eq!(failure.reason(), "CredentialUnusable");
        let url = "https://127.0.0.1:1";
        let tenant = config.client(url, Credential::value(SecretValue::from("k".to_owned())), &Metrics::default());
        let error = tenant.unwrap().list(&konverge_openzro::Collection::Groups).await.unwrap_err();
        assert!(error.to_string().contains("/nowhere/ca.crt"), "{error}");
    }

    #[test]
    fn a_namespace_can_have_an_account_of_its_own() {
        let config = parse(&["--openzro-api-key=k", "--account=a=/t/a,https://a.example.com", "--account", "b=/t/b"]);
        let config = config.map_err(|error| error.to_string()).unwrap();
        let settings = config.settings();
        assert_eq!((settings.url("a"), settings.url("b")), ("https://a.example.com", "https://api.openzro.io"));
        assert_eq!((&*settings.scope(Some("a")), &*settings.scope(Some("c")), &*settings.scope(None)), ("a", "", ""));
        assert!(settings.has_own_network("a") && !settings.has_own_network("c"));
        let account = config.account(&Metrics::default()).unwrap().unwrap();
        assert!(account.of("").is_ok() && account.of("a").is_ok() && account.of("b").is_ok());
        // Never the account of the operator in the place of one that is missing.
        assert_eq!(account.of("c").err().unwrap().reason(), "NoAccount");
        for wrong in ["a", "a=", "=/t", "a=/t,"] {
            assert!(parse(&["--account", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn w33_labels_with_the_quotes_of_the_chart_are_read_and_others_refused() {
        for (text, expected) in [
            ("", Some(0)),
            ("a=b", Some(1)),
            ("\"a=b, c=d\"", Some(2)),
            ("example.com/team=net", Some(1)),
            ("a", None),
            ("a=b c", None),
            ("/a=b", None),
            ("=b", None),
        ] {
            assert_eq!(labels(text).ok().map(|labels| labels.len()), expected, "{text}");
        }
    }
}

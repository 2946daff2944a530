//! The settings that every program has: flags, each with a variable of its own.

#[cfg(feature = "serve")]
mod metrics;
#[cfg(feature = "serve")]
mod server;
#[cfg(feature = "admission")]
pub(crate) mod webhook;

use std::{fmt, path::PathBuf, time::Duration};

use konverge_runtime::{
    LeaseOptions,
    client::ClientOptions,
    lease::{Timings, TimingsError},
    telemetry::LogFormat,
};

use crate::flags::Args;

#[cfg(feature = "admission")]
pub use webhook::WebhookOptions;
#[cfg(feature = "serve")]
pub use {metrics::MetricsOptions, server::ServerOptions};

/// Settings of an operator. Flatten them into a struct of your own to add more.
///
/// Begin with the defaults and change what is to be different:
///
/// ```
/// let options = konverge::Options::default().with(|options| options.dry_run = true);
/// ```
#[derive(Clone, Args)]
#[non_exhaustive]
pub struct Options {
    /// Kubeconfig file [default: the pod's service account, else what kubectl uses]
    #[arg(long, env = "KONVERGE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The only namespaces to look at; may be repeated [default: all namespaces]
    #[arg(long = "namespace", env = "KONVERGE_NAMESPACES", value_delimiter = ',', value_name = "NAME")]
    pub namespaces: Vec<String>,
    /// Only look at objects with these labels, such as team=a,tier!=test; gives each shard of an operator its part
    #[arg(long, env = "KONVERGE_SELECTOR", value_parser = konverge_runtime::watch::label_selector, value_name = "LABELS")]
    pub selector: Option<String>,
    /// The HTTP endpoints and their addresses.
    #[cfg(feature = "serve")]
    #[command(flatten)]
    pub server: ServerOptions,
    /// Let one of several replicas work while the others stand by
    #[arg(long, env = "KONVERGE_LEADER_ELECTION")]
    pub leader_election: bool,
    /// Namespace of the lease [default: that of the pod or of the kubeconfig]
    #[arg(long, env = "OPERATOR_NAMESPACE", value_name = "NAME")]
    pub lease_namespace: Option<String>,
    /// Name of the lease, one per shard [default: the name of the program with -leader]
    #[arg(long, env = "KONVERGE_LEASE_NAME", value_name = "NAME")]
    pub lease_name: Option<String>,
    /// How long a standby waits after the last sign of life, in whole seconds
    #[arg(long, env = "KONVERGE_LEASE_DURATION", default_value = "15", value_name = "SECONDS")]
    pub lease_duration: u64,
    /// How long a leader goes on without a renewal, in seconds; less than the lease
    #[arg(long, env = "KONVERGE_RENEW_DEADLINE", default_value = "10", value_name = "SECONDS")]
    pub renew_deadline: u64,
    /// The pause between two renewals, in seconds; less than the deadline
    #[arg(long, env = "KONVERGE_RETRY_PERIOD", default_value = "2", value_name = "SECONDS")]
    pub retry_period: u64,
    /// Ask the API server what each write would do, log it, and write nothing: no lease, no event, no certificate either
    #[arg(long, env = "KONVERGE_DRY_RUN")]
    pub dry_run: bool,
    /// Apply the program's own resource definitions at start; needs a role from generate --install-crds
    #[arg(long, env = "KONVERGE_INSTALL_CRDS")]
    pub install_crds: bool,
    /// How long the first lists of all watched kinds may take, in seconds, before the program ends; 0 waits for ever
    #[arg(long, env = "KONVERGE_CACHE_SYNC_TIMEOUT", default_value = "120", value_name = "SECONDS")]
    pub cache_sync_timeout: u64,
    /// How long stopping may take, in seconds
    #[arg(long, env = "KONVERGE_GRACE_PERIOD", default_value = "30", value_name = "SECONDS")]
    pub grace_period: u64,
    /// Form of the log lines; how many there are is up to `RUST_LOG`, and to /debug/log while it runs
    #[arg(long, env = "KONVERGE_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// Send traces to the OpenTelemetry collector at this URL, by OTLP over HTTP
    #[cfg(feature = "otlp")]
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL", hide = true)]
    pub otlp_endpoint: Option<String>,
    /// Where webhooks are answered.
    #[cfg(feature = "admission")]
    #[command(flatten)]
    pub webhook: WebhookOptions,
}

impl Default for Options {
    /// The settings of a program that is given no flag, whatever variables the environment has.
    fn default() -> Self {
        Self {
            kubeconfig: None,
            namespaces: Vec::new(),
            selector: None,
            #[cfg(feature = "serve")]
            server: ServerOptions::default(),
            leader_election: false,
            lease_namespace: None,
            lease_name: None,
            lease_duration: 15,
            renew_deadline: 10,
            retry_period: 2,
            dry_run: false,
            install_crds: false,
            cache_sync_timeout: 120,
            grace_period: 30,
            log_format: LogFormat::Text,
            #[cfg(feature = "otlp")]
            otlp_endpoint: None,
            #[cfg(feature = "admission")]
            webhook: WebhookOptions::default(),
        }
    }
}

konverge_core::with!(Options);

impl Options {
    /// How to reach the API server.
    pub fn client(&self) -> ClientOptions {
        ClientOptions::default().with(|options| options.kubeconfig.clone_from(&self.kubeconfig))
    }

    /// Which lease, for a program of this name whose own namespace is `namespace`.
    pub fn lease(&self, program: &str, namespace: &str) -> Result<LeaseOptions, TimingsError> {
        let namespace = self.lease_namespace.as_deref().unwrap_or(namespace);
        let name = self.lease_name.clone().unwrap_or_else(|| format!("{program}-leader"));
        let timings = Timings::new(
            Duration::from_secs(self.lease_duration),
            Duration::from_secs(self.renew_deadline),
            Duration::from_secs(self.retry_period),
        )?;
        Ok(LeaseOptions::new(namespace, name).with(|lease| lease.timings = timings))
    }
}

/// The same line as `Display`, because a derived one would print passwords in URLs.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Options({self})")
    }
}

/// The settings in force, in one line; there is no secret among them.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Taken apart so that a new setting is not forgotten here.
        let Self {
            kubeconfig,
            namespaces,
            selector,
            #[cfg(feature = "serve")]
            server,
            leader_election,
            lease_namespace,
            lease_name,
            lease_duration,
            renew_deadline,
            retry_period,
            dry_run,
            install_crds,
            cache_sync_timeout,
            grace_period,
            log_format,
            #[cfg(feature = "otlp")]
            otlp_endpoint,
            #[cfg(feature = "admission")]
            webhook,
        } = self;
        let or_default = |value: &Option<String>| value.clone().unwrap_or_else(|| "default".to_owned());
        let kubeconfig = kubeconfig.as_ref().map(|path| path.display().to_string());
        let namespaces = if namespaces.is_empty() { "all".to_owned() } else { namespaces.join(",") };
        write!(f, "kubeconfig={} namespaces={namespaces} ", or_default(&kubeconfig))?;
        write!(f, "selector={} ", selector.as_deref().unwrap_or("none"))?;
        #[cfg(feature = "serve")]
        write!(f, "{server} ")?;
        write!(f, "leader-election={leader_election} lease-namespace={} ", or_default(lease_namespace))?;
        write!(f, "lease-name={} lease-duration={lease_duration}s ", or_default(lease_name))?;
        write!(f, "renew-deadline={renew_deadline}s retry-period={retry_period}s dry-run={dry_run} ")?;
        write!(f, "install-crds={install_crds} cache-sync-timeout={cache_sync_timeout}s ")?;
        write!(f, "grace-period={grace_period}s log-format={log_format:?}")?;
        // Not which: a URL may have a password in it.
        #[cfg(feature = "otlp")]
        write!(f, " traces={}", otlp_endpoint.as_ref().is_some_and(|endpoint| !endpoint.is_empty()))?;
        #[cfg(feature = "admission")]
        {
            let WebhookOptions { address, client_ca, drain, .. } = webhook;
            let url = or_default(&webhook.shown_url());
            write!(f, " webhook-address={address} webhook-url={url} webhook-drain={drain}s")?;
            let client_ca = client_ca.as_ref().map(|path| path.display().to_string());
            write!(f, " webhook-client-ca={}", or_default(&client_ca))?;
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "cli"))]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn row_37_every_flag_has_a_variable() {
        for argument in Program::command().get_arguments() {
            assert!(argument.get_env().is_some(), "{}", argument.get_id());
        }
    }

    #[test]
    fn the_defaults_are_those_of_a_program_without_flags() {
        let parsed = Program::parse_from(["test"]).options;
        assert_eq!(Options::default().to_string(), parsed.to_string());
    }

    #[test]
    fn the_lease_is_named_after_the_program_unless_said() {
        let options = |arguments: &[&str]| Program::parse_from([&["test"], arguments].concat()).options;
        let lease = options(&[]).lease("test", "here").unwrap();
        assert_eq!((lease.namespace.as_str(), lease.name.as_str()), ("here", "test-leader"));
        let lease = options(&["--lease-name=shard-1", "--lease-namespace=there"]).lease("test", "here").unwrap();
        assert_eq!((lease.namespace.as_str(), lease.name.as_str()), ("there", "shard-1"));
        assert!(options(&["--renew-deadline=20"]).lease("test", "here").is_err());
    }

    #[cfg(all(feature = "otlp", feature = "admission"))]
    #[test]
    fn passwords_in_urls_are_not_printed() {
        let options = |arguments: &[&str]| Program::parse_from([&["test"], arguments].concat());
        let program = options(&[
            "--otlp-endpoint=http://alice:hunter2@traces.example:4318",
            "--webhook-url=https://alice:hunter2@hooks.example:9443/a?token=hunter2",
        ]);
        let texts = [program.options.to_string(), format!("{program:?}"), format!("{:?}", program.options.webhook)];
        for text in &texts {
            assert!(!text.contains("hunter2") && !text.contains("alice"), "{text}");
            assert!(text.contains("https://hooks.example:9443/a"), "{text}");
        }
        assert!(texts[0].contains("traces=true"), "{}", texts[0]);
        let program = options(&["--webhook-url=hunter2 is no URL"]);
        assert!(!format!("{program:?}").contains("hunter2"));
    }

    #[test]
    fn a_selector_that_cannot_be_read_is_refused_at_start() {
        let error = Program::try_parse_from(["test", "--selector", "==="]).unwrap_err().to_string();
        assert!(error.contains("\"==\" stands where the name of a label is expected"), "{error}");
        let options = Program::parse_from(["test", "--selector", "team=a,tier!=test"]).options;
        assert_eq!(options.selector.as_deref(), Some("team=a,tier!=test"));
    }

    #[test]
    fn namespaces_are_repeated_or_separated_by_commas() {
        let options = Program::parse_from(["test", "--namespace=a,b", "--namespace", "c"]).options;
        assert_eq!(options.namespaces, ["a", "b", "c"]);
        assert!(options.to_string().contains("namespaces=a,b,c"), "{options}");
    }
}

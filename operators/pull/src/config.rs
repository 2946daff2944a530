//! The operator's settings: flags, each with a variable of its own.

use std::{ffi::OsString, fmt, path::PathBuf, time::Duration};

use clap::{Args, Parser};
use konverge::Options;
use konverge_jobs::{MetricsOptions, Program, Settings, Shared};
use konverge_runtime::{
    http_server::Listen,
    telemetry::LogFormat,
    watch::{label_selector, namespace},
};
use konverge_version::variables;
use konverge_zopp_client::{
    ClientCertificate, ClientConfig, EnvironmentName, Fingerprint, FingerprintError, Profile, Trust,
    config::DEFAULT_SERVER,
};

use crate::{allow::Rule, vault::VaultFlags, zopp::memory::Accepted};

konverge_jobs::metrics_flags!("ZOPP");

/// The program's name in metrics, events and the lease: that of the original.
pub(crate) const PROGRAM: &str = "zopp-operator";

/// Parses the command line and the environment. Prints help, the version or an error, and exits, like `clap::Parser::parse`.
pub fn arguments(arguments: impl IntoIterator<Item = OsString>) -> Config {
    variables::parse_from(arguments).unwrap_or_else(|error| error.exit())
}

/// Keeps annotated Kubernetes Secrets equal to environments of zopp and secrets in Vault.
///
/// Credentials are the current principal of the credentials file. If `ZOPP_PRINCIPAL_ID` is set, they are that variable together with
/// `ZOPP_PRINCIPAL_NAME`, `ZOPP_PRIVATE_KEY`, `ZOPP_PUBLIC_KEY`, `ZOPP_X25519_PRIVATE_KEY` and `ZOPP_X25519_PUBLIC_KEY` in hexadecimal.
#[derive(Debug, Clone, Parser)]
#[command(name = "zopp-operator", version = konverge_version::line())]
pub struct Config {
    /// Which server, and as whom
    #[command(flatten)]
    pub server: ServerFlags,
    /// The only namespace to look at [default: all namespaces]
    #[arg(long, env = "ZOPP_NAMESPACE", value_parser = namespace)]
    pub namespace: Option<String>,
    /// Where /healthz, /readyz and /metrics are served; 0 is nowhere
    #[arg(
        long = "health-probe-bind-address",
        visible_alias = "health-addr",
        env = "ZOPP_HEALTH_ADDR",
        default_value = "0.0.0.0:8080",
        value_name = "ADDRESS"
    )]
    pub health_addr: Listen,
    /// Where metrics are served, and to whom
    #[command(flatten)]
    pub metrics: MetricsFlags,
    /// How the server and its keys are verified
    #[command(flatten)]
    pub trust: TrustFlags,
    /// How Vault is reached
    #[command(flatten)]
    pub vault: VaultFlags,
    /// How often each environment is asked for changes that its stream did not tell, in seconds, or with a unit: 90s, 5m
    #[arg(long, env = "ZOPP_POLL_INTERVAL", default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    pub poll_interval: Duration,
    /// Only look at Secrets with these labels, such as team=a,tier!=test
    #[arg(long, env = "ZOPP_SELECTOR", value_parser = label_selector, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Which namespaces may have what; may be repeated. A rule is about zopp, such as team-a=acme/backend/*, or about Vault, such as
    /// `*=vault://secret/{namespace}/*`. * matches anything, at the end of a path in Vault one part or more, and {namespace} the namespace of the Secret
    /// [default: every environment of zopp, and nothing in Vault]
    #[arg(
        long = "allow",
        visible_alias = "allow-path",
        env = "ZOPP_ALLOW",
        value_delimiter = ',',
        value_name = "NAMESPACE=SOURCE"
    )]
    pub allow: Vec<Rule>,
    /// How many Secrets are worked on at the same time
    #[arg(long, env = "ZOPP_WORKERS", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Form of the log lines; how many there are is up to `RUST_LOG`
    #[arg(long, env = "ZOPP_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Let one of several replicas work while the others stand by
    #[arg(long, visible_alias = "leader-election", env = "ZOPP_LEADER_ELECT")]
    pub leader_elect: bool,
    /// Kubeconfig file [default: the pod's service account, else what kubectl uses]
    #[arg(long, env = "ZOPP_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// Which server, and as whom.
#[derive(Debug, Clone, Args)]
#[command(about = None, long_about = None)]
pub struct ServerFlags {
    /// Address of the zopp server, with scheme
    #[arg(long = "server", env = "ZOPP_SERVER", default_value = DEFAULT_SERVER, value_name = "URL")]
    pub address: String,
    /// Credentials file [default: ~/.zopp/config.json]
    #[arg(long, env = "ZOPP_CREDENTIALS", value_name = "FILE")]
    pub credentials: Option<PathBuf>,
    /// Connect to no zopp server but those of `SecretSource` and `ClusterSecretSource` objects, and need no credentials
    #[arg(long, env = "ZOPP_SECRET_SOURCES_ONLY", conflicts_with = "credentials")]
    pub secret_sources_only: bool,
}

/// How the server and its keys are verified.
#[derive(Debug, Clone, Args)]
#[command(about = None, long_about = None)]
pub struct TrustFlags {
    /// PEM file with the CA that signed the server's certificate [default: the system's roots]
    #[arg(long, env = "ZOPP_TLS_CA_CERT", value_name = "FILE")]
    pub tls_ca_cert: Option<PathBuf>,
    /// PEM file with the certificate to show to a server that requires one; read again when it changes [default: as the credentials file
    /// says]
    #[arg(long, env = "ZOPP_TLS_CLIENT_CERT", value_name = "FILE", requires = "tls_client_key")]
    pub tls_client_cert: Option<PathBuf>,
    /// PEM file with that certificate's private key
    #[arg(long, env = "ZOPP_TLS_CLIENT_KEY", value_name = "FILE", requires = "tls_client_cert")]
    pub tls_client_key: Option<PathBuf>,
    /// Generation of the server: v2, or v1 for zopp 0.1.1. Anybody who sees a signature of v1 can make any call for a minute, so v1
    /// must be given here or in the credentials file [default: as that file says, else v2]
    #[arg(long, env = "ZOPP_GENERATION", value_parser = generation, value_name = "v1|v2")]
    pub generation: Option<Profile>,
    /// The workspace's key by its fingerprint (zopp workspace fingerprint); may be repeated; any other key of that workspace is refused
    /// [default: as the credentials file says]
    #[arg(
        long = "workspace-fingerprint",
        env = "ZOPP_WORKSPACE_FINGERPRINTS",
        value_delimiter = ',',
        value_parser = workspace_fingerprint,
        value_name = "WORKSPACE=FINGERPRINT"
    )]
    pub workspace_fingerprints: Vec<(String, Fingerprint)>,
    /// Refuse a workspace key that is not pinned unless a principal that the credentials file knows signed it, also with --trust-first-key, and a replaced
    /// one unless an administrator made it [default: true where the file names the administrators of the workspace]
    #[arg(long, env = "ZOPP_REQUIRE_SIGNED_KEYS", num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub require_signed_keys: Option<bool>,
    /// Trust the first key of a workspace that the server gives, if neither the settings, the credentials file nor the cluster has a pin [default:
    /// true for zopp-operator, false for konverge run]
    #[arg(long, env = "ZOPP_TRUST_FIRST_KEY", num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub trust_first_key: Option<bool>,
    /// Refuse an environment without a manifest from the first read; else it is refused only if a manifest was seen before
    #[arg(long, env = "ZOPP_REQUIRE_MANIFEST")]
    pub require_manifest: bool,
    /// Accept another state of an environment than the applied one, and a former key of its workspace, after an intended restore of the server or for an
    /// environment that was created again; may be repeated. Each WORD, such as the date, accepts one state
    #[arg(
        long = "accept-older",
        env = "ZOPP_ACCEPT_OLDER",
        value_delimiter = ',',
        value_parser = accepted_environment,
        value_name = "WORKSPACE/PROJECT/ENVIRONMENT=WORD"
    )]
    pub accept_older: Vec<(EnvironmentName, String)>,
}

impl TrustFlags {
    /// Returns the environments whose older state a person accepts.
    pub(crate) fn accepted(&self) -> Accepted {
        self.accept_older.iter().cloned().collect()
    }
}

impl Settings for Config {
    const LEASE: &'static str = PROGRAM;
    const SHARED: Shared = Shared { addresses: &["health_addr", "metrics_bind_address"], of_process: &["log_format"] };

    fn program(&self) -> Program {
        Program {
            name: PROGRAM,
            lease: self.leader_elect.then_some(Self::LEASE),
            address: self.health_addr,
            metrics: self.metrics.options(),
            kubeconfig: self.kubeconfig.clone(),
        }
    }

    fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

impl Config {
    /// Returns the settings of the program with the original's name. Its users have no pins, so it trusts the first key by default.
    #[must_use]
    pub fn as_original(mut self) -> Self {
        self.trust.trust_first_key.get_or_insert(true);
        self
    }

    /// Returns the settings of the framework.
    pub fn options(&self) -> Options {
        Options::default().with(|options| {
            options.kubeconfig.clone_from(&self.kubeconfig);
            options.namespaces.extend(self.namespace.clone());
            options.server.address = self.health_addr;
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
            options.lease_name = Some(Self::LEASE.to_owned());
            // The program is unready while a list is not complete, and fills no Secret. Ending it would not help.
            options.cache_sync_timeout = 0;
            options.log_format = self.log_format;
        })
    }

    /// How to reach the zopp server, held to what the settings pin.
    pub fn client(&self, trust: Trust) -> ClientConfig {
        let TrustFlags {
            tls_ca_cert,
            tls_client_cert,
            tls_client_key,
            generation,
            workspace_fingerprints,
            require_signed_keys,
            trust_first_key,
            require_manifest,
            accept_older: _,
        } = &self.trust;
        for (workspace, fingerprint) in workspace_fingerprints {
            trust.pin_workspace(workspace, *fingerprint);
        }
        let client_certificate = tls_client_cert.clone().zip(tls_client_key.clone());
        ClientConfig {
            ca_certificate: tls_ca_cert.clone(),
            client_certificate: client_certificate.map(|(certificate, key)| ClientCertificate { certificate, key }),
            profile: *generation,
            require_signed_keys: *require_signed_keys,
            trust_first_key: trust_first_key.unwrap_or_default(),
            require_manifest: *require_manifest,
            trust,
            ..ClientConfig::new(&self.server.address)
        }
    }
}

/// The settings in force, in one line. There is no secret among them: credentials are a file's name or are not shown.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Taken apart so that a new setting is not forgotten here.
        let Self {
            server: ServerFlags { address, credentials, secret_sources_only },
            namespace,
            health_addr,
            metrics,
            trust:
                TrustFlags {
                    tls_ca_cert,
                    tls_client_cert,
                    tls_client_key,
                    generation,
                    workspace_fingerprints,
                    require_signed_keys,
                    trust_first_key,
                    require_manifest,
                    accept_older,
                },
            vault,
            poll_interval,
            selector,
            allow,
            workers,
            log_format,
            leader_elect,
            kubeconfig,
        } = self;
        let path =
            |path: &Option<PathBuf>| path.as_ref().map_or("default".to_owned(), |path| path.display().to_string());
        let rules: Vec<String> = allow.iter().map(ToString::to_string).collect();
        if *secret_sources_only {
            write!(f, "secret-sources-only=true ")?;
        } else {
            write!(f, "server={address} credentials={} ", path(credentials))?;
        }
        write!(f, "namespace={} ", namespace.as_deref().unwrap_or("all"))?;
        write!(f, "health-probe-bind-address={health_addr} {} ", metrics.options())?;
        write!(f, "tls-ca-cert={} ", path(tls_ca_cert))?;
        write!(f, "tls-client-cert={} tls-client-key={} ", path(tls_client_cert), path(tls_client_key))?;
        let generation = match generation {
            None => "default",
            Some(Profile::V1) => "v1",
            Some(Profile::V2) => "v2",
        };
        let pins: Vec<String> =
            workspace_fingerprints.iter().map(|(name, fingerprint)| format!("{name}={fingerprint}")).collect();
        write!(f, "generation={generation} ")?;
        write!(f, "workspace-fingerprint={} ", if pins.is_empty() { "none".to_owned() } else { pins.join(",") })?;
        write!(f, "trust-first-key={} ", trust_first_key.unwrap_or_default())?;
        let signed = require_signed_keys.map_or("auto".to_owned(), |required| required.to_string());
        write!(f, "require-signed-keys={signed} require-manifest={require_manifest} ")?;
        let older: Vec<String> = accept_older.iter().map(|(name, word)| format!("{name}={word}")).collect();
        write!(f, "accept-older={} ", if older.is_empty() { "none".to_owned() } else { older.join(",") })?;
        write!(f, "{vault} ")?;
        write!(f, "poll-interval={}s ", poll_interval.as_secs_f64())?;
        write!(f, "selector={} ", selector.as_deref().unwrap_or("none"))?;
        write!(f, "allow={} ", if rules.is_empty() { "everything".to_owned() } else { rules.join(",") })?;
        write!(f, "workers={workers} log-format={log_format:?} ")?;
        write!(f, "leader-elect={leader_elect} kubeconfig={}", path(kubeconfig))
    }
}

/// The shortest poll: below it, the net costs more than the stream that it secures.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

fn generation(text: &str) -> Result<Profile, &'static str> {
    match text {
        "v1" => Ok(Profile::V1),
        "v2" => Ok(Profile::V2),
        _ => Err("v1 or v2 is expected"),
    }
}

fn workspace_fingerprint(text: &str) -> Result<(String, Fingerprint), String> {
    let (workspace, fingerprint) = text.split_once('=').ok_or("WORKSPACE=FINGERPRINT is expected")?;
    let fingerprint = fingerprint.parse().map_err(|error: FingerprintError| error.to_string())?;
    Ok((workspace.to_owned(), fingerprint))
}

fn accepted_environment(text: &str) -> Result<(EnvironmentName, String), &'static str> {
    let expected = "WORKSPACE/PROJECT/ENVIRONMENT=WORD is expected";
    let (name, word) = text.rsplit_once('=').ok_or(expected)?;
    match name.split('/').collect::<Vec<_>>()[..] {
        [workspace, project, environment] if !name.starts_with('/') && !name.ends_with('/') && !word.is_empty() => {
            Ok((EnvironmentName::new(workspace, project, environment), word.to_owned()))
        }
        _ => Err(expected),
    }
}

pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        unit => return Err(format!("{unit:?} is no unit of time: use s, m or h")),
    };
    let number: u64 =
        digits.parse().map_err(|_| "a whole number of seconds is expected, such as 60 or 60s".to_owned())?;
    let duration = Duration::from_secs(number.checked_mul(unit).ok_or("too long")?);
    if duration < SHORTEST_POLL {
        return Err(format!("it must be at least {} s", SHORTEST_POLL.as_secs()));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Config, clap::Error> {
        Config::try_parse_from([&["zopp-operator"], arguments].concat())
    }

    #[test]
    fn those_of_a_container_are_its_own_flags_before_its_variables() {
        let variables = [("ZOPP_LEADER_ELECT", "true"), ("ZOPP_NAMESPACE", "team-a"), ("ZOPP_POLL_INTERVAL", "5m")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let of = |line: &str| {
            let arguments: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            Config::of_container(&arguments, &variables)
        };
        let config = of("--namespace shop --allow=shop=acme/*/*").unwrap();
        assert_eq!((config.leader_elect, config.namespace.as_deref()), (true, Some("shop")));
        assert_eq!(config.poll_interval, Duration::from_mins(5));
        assert!(of("--no-such-flag").is_err());
    }

    #[test]
    fn fingerprints_are_pinned_over_those_of_the_credentials_file() {
        let of = |byte: u8| Fingerprint::of_principal(&[byte], &[]);
        let line = format!("--workspace-fingerprint=acme={},b={}", of(1), of(2));
        let config = parse(&[&line, "--generation", "v2"]).unwrap();
        let trust = Trust::default();
        trust.check_workspace("acme", of(9)).unwrap();
        let client = config.client(trust.clone());
        assert_eq!(client.profile, Some(Profile::V2));
        assert!(trust.check_workspace("acme", of(9)).is_err());
        assert!(trust.check_workspace("acme", of(1)).is_ok() && trust.check_workspace("b", of(2)).is_ok());
        assert!(config.to_string().contains(&format!("workspace-fingerprint=acme={},b={} ", of(1), of(2))));
        assert!(parse(&["--workspace-fingerprint", "acme"]).is_err());
        assert!(parse(&["--workspace-fingerprint", "acme=1"]).is_err());
        assert!(parse(&["--generation", "v3"]).is_err());
    }

    #[test]
    fn signed_keys_are_required_by_flag_or_variable() {
        let required = |config: &Config| config.client(Trust::default()).require_signed_keys;
        for (line, expected, shown) in [
            (&[][..], None, "auto"),
            (&["--require-signed-keys"], Some(true), "true"),
            (&["--require-signed-keys=false"], Some(false), "false"),
        ] {
            let config = parse(line).unwrap();
            assert_eq!(required(&config), expected, "{line:?}");
            assert!(config.to_string().contains(&format!(" require-signed-keys={shown} ")), "{config}");
        }
        for (value, expected) in [("true", Some(true)), ("false", Some(false)), ("", None)] {
            let variables = [("ZOPP_REQUIRE_SIGNED_KEYS".to_owned(), value.to_owned())].into();
            assert_eq!(required(&Config::of_container(&[], &variables).unwrap()), expected, "{value:?}");
        }
    }

    #[test]
    fn the_first_key_is_believed_on_request_and_by_the_program_of_the_original() {
        let is_believed = |config: &Config| config.client(Trust::default()).trust_first_key;
        for (line, native, by_name) in
            [(&[][..], false, true), (&["--trust-first-key"], true, true), (&["--trust-first-key=false"], false, false)]
        {
            let config = parse(line).unwrap();
            assert_eq!((is_believed(&config), is_believed(&config.as_original())), (native, by_name), "{line:?}");
        }
    }

    #[test]
    fn an_older_state_is_accepted_of_a_named_environment_by_a_word() {
        let config = parse(&["--accept-older", "acme/backend/production=monday", "--require-manifest"]).unwrap();
        assert_eq!(
            config.trust.accept_older[0],
            (EnvironmentName::new("acme", "backend", "production"), "monday".into())
        );
        assert!(config.client(Trust::default()).require_manifest);
        let text = config.to_string();
        assert!(text.contains(" require-manifest=true accept-older=acme/backend/production=monday "), "{text}");
        for wrong in
            ["acme/backend/production", "acme/backend=monday", "acme/backend/=monday", "a/b/c=", "=monday", "a/b/c/d=e"]
        {
            assert!(parse(&["--accept-older", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_client_certificate_needs_its_key() {
        let config = parse(&["--tls-client-cert", "/c.pem", "--tls-client-key", "/k.pem"]).unwrap();
        let client = config.client(Trust::default()).client_certificate.unwrap();
        assert_eq!((client.certificate, client.key), ("/c.pem".into(), "/k.pem".into()));
        assert!(config.to_string().contains("tls-client-cert=/c.pem tls-client-key=/k.pem "));
        assert!(parse(&["--tls-client-cert", "/c.pem"]).is_err());
        assert!(parse(&["--tls-client-key", "/k.pem"]).is_err());
        assert_eq!(parse(&[]).unwrap().client(Trust::default()).client_certificate, None);
    }

    #[test]
    fn without_a_connection_of_its_own_the_operator_needs_no_credentials() {
        let config = parse(&["--secret-sources-only"]).unwrap();
        assert!(config.server.secret_sources_only && config.to_string().starts_with("secret-sources-only=true "));
        assert!(parse(&["--secret-sources-only", "--credentials", "/c.json"]).is_err());
    }

    #[test]
    fn durations() {
        for (text, seconds) in [("60", 60), ("1s", 1), ("5m", 300), ("2h", 7200)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "s", "1.5s", "-1", "1d", "0", "99999999999999999999", "18446744073709551615h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_selector_that_cannot_be_read_is_refused_at_start() {
        let error = parse(&["--selector", "==="]).unwrap_err().to_string();
        assert!(error.contains("\"==\" stands where the name of a label is expected"), "{error}");
        assert_eq!(parse(&["--selector", "team=a"]).unwrap().selector.as_deref(), Some("team=a"));
    }

    #[test]
    fn the_defaults_are_those_of_the_original() {
        let config = parse(&[]).unwrap();
        assert_eq!(config.server.address, "http://127.0.0.1:50051");
        assert_eq!(config.health_addr.to_string(), "0.0.0.0:8080");
        assert_eq!((config.namespace, config.server.credentials, config.trust.tls_ca_cert), (None, None, None));
        assert_eq!(config.poll_interval, Duration::from_mins(1));
    }

    #[test]
    fn rules_are_repeated_or_separated_by_commas() {
        let config = parse(&["--allow", "a=w/p/e,b=w/*/*", "--allow-path", "c=*/*/*"]).unwrap();
        assert_eq!(config.allow.len(), 3);
        assert!(config.to_string().contains("allow=a=w/p/e,b=w/*/*,c=*/*/*"), "{config}");
        let error = parse(&["--allow", "team-a"]).unwrap_err().to_string();
        assert!(error.contains("<namespace>=<workspace>/<project>/<environment>"), "{error}");
    }
}

//! The operator's settings, each with a flag and a variable.

mod vault;

use std::{ffi::OsString, fmt, path::PathBuf};

use clap::{Args, Parser};
use jiff::SignedDuration;
use konverge_jobs::{Program, Settings, Shared};
use konverge_runtime::{http_server::Listen, telemetry::LogFormat, watch::namespace};
use konverge_version::variables;
use konverge_workload::WorkloadKind;

pub use self::vault::{VaultFlags, VaultLogin};
use crate::{
    annotations::{Others, Reloader, Renamed},
    breaker,
    budget::Limits,
    time::span,
};

konverge_jobs::metrics_flags!("ROLLOUT");

/// The program's name in metrics, events, errors and the lease.
pub(crate) const PROGRAM: &str = "vault-rollout-operator";

/// The kinds that can opt in: those with a template that may change.
pub const KINDS: [WorkloadKind; 5] = [
    WorkloadKind::Deployment,
    WorkloadKind::StatefulSet,
    WorkloadKind::DaemonSet,
    WorkloadKind::CronJob,
    WorkloadKind::Rollout,
];

/// Rolls what uses a Secret, a `ConfigMap` or a secret in Vault when that changes: exactly once, and only then.
#[derive(Debug, Clone, Parser)]
#[command(name = "vault-rollout-operator", version = konverge_version::line(), args_override_self = true)]
pub struct Config {
    /// The only namespace to look at [default: all namespaces]
    #[arg(long, env = "ROLLOUT_NAMESPACE", value_parser = namespace)]
    pub namespace: Option<String>,
    /// Kinds of workloads that the operator watches; rollouts are those of Argo
    #[arg(long, env = "ROLLOUT_KINDS", value_delimiter = ',', default_value = "deployments,statefulsets,daemonsets,cronjobs,rollouts", value_parser = kind)]
    pub kinds: Vec<WorkloadKind>,
    /// The tools whose annotations are understood
    #[command(flatten)]
    pub tools: Tools,
    /// How often and how many workloads are rolled
    #[command(flatten)]
    pub pace: Pace,

    /// How Vault is reached, if the operator follows it
    #[command(flatten)]
    pub vault: VaultFlags,

    /// Secret beside the operator with the key of digests; made if it is not there
    #[arg(long, env = "ROLLOUT_DIGEST_KEY", default_value = "vault-rollout-operator-digest-key", value_name = "NAME")]
    pub digest_key: String,
    /// How many workloads are worked on at the same time
    #[arg(long, env = "ROLLOUT_WORKERS", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Where /healthz, /readyz and /metrics are served; 0 is nowhere
    #[arg(
        long = "health-probe-bind-address",
        visible_alias = "bind-address",
        env = "ROLLOUT_HEALTH_PROBE_BIND_ADDRESS",
        default_value = ":8080",
        value_name = "ADDRESS"
    )]
    pub bind_address: Listen,
    /// Where metrics are served, and to whom
    #[command(flatten)]
    pub metrics: MetricsFlags,
    /// Let one of several replicas work while the others stand by
    #[arg(long, env = "ROLLOUT_LEADER_ELECT")]
    pub leader_elect: bool,
    /// Kubeconfig file [default: the pod's service account, else what kubectl uses]
    #[arg(long, env = "ROLLOUT_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Form of the log lines; how many there are is up to `RUST_LOG`
    #[arg(long, env = "ROLLOUT_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// The tools whose annotations are understood beside our own and those of zopp.
#[derive(Debug, Clone, Args)]
#[command(about = None, long_about = None)]
pub struct Tools {
    /// Understand the annotations of Stakater Reloader
    #[arg(long, env = "ROLLOUT_RELOADER_ANNOTATIONS")]
    pub reloader_annotations: bool,
    /// An annotation of Reloader that has another name here, such as reloader.stakater.com/auto=example.com/auto; may be repeated
    #[arg(
        long,
        env = "ROLLOUT_RELOADER_ANNOTATION",
        value_delimiter = ',',
        requires = "reloader_annotations",
        value_name = "NAME=YOURS"
    )]
    pub reloader_annotation: Vec<Renamed>,
    /// Roll each workload for all that its pods use unless Reloader's annotations on it say otherwise, as Reloader's --auto-reload-all does
    #[arg(long, env = "ROLLOUT_RELOADER_AUTO_RELOAD_ALL", requires = "reloader_annotations")]
    pub reloader_auto_reload_all: bool,
    /// Understand the annotations of wave
    #[arg(long, env = "ROLLOUT_WAVE_ANNOTATIONS")]
    pub wave_annotations: bool,
}

/// How often and how many workloads are rolled.
#[derive(Debug, Clone, Args)]
#[command(about = None, long_about = None)]
pub struct Pace {
    /// The least time between two rollouts of a workload that does not say
    #[arg(long, env = "ROLLOUT_MIN_INTERVAL", default_value = "1m", value_parser = span, value_name = "TIME")]
    pub min_interval: SignedDuration,
    /// How long a source must stay unchanged before its users restart; a source that keeps changing delays them five times as long at most
    #[arg(long, env = "ROLLOUT_DEBOUNCE", default_value = "1s", value_parser = span, value_name = "TIME")]
    pub debounce: SignedDuration,
    /// How long later waves and the budget wait for a rollout that does not become ready, and when one has failed that has no deadline of its own;
    /// with 0, they wait for none, and none fails for that
    #[arg(long, env = "ROLLOUT_TIMEOUT", default_value = "10m", value_parser = span, value_name = "TIME")]
    pub rollout_timeout: SignedDuration,
    /// Rollouts in any minute, over all workloads; 0 is no limit
    #[arg(long, env = "ROLLOUT_MAX_PER_MINUTE", default_value_t = 100, value_name = "NUMBER")]
    pub max_rollouts_per_minute: usize,
    /// Rollouts under way at the same time, over all workloads; 0 is no limit
    #[arg(long, env = "ROLLOUT_MAX_CONCURRENT", default_value_t = 25, value_name = "NUMBER")]
    pub max_concurrent_rollouts: usize,
    /// Rollouts under way at the same time in one namespace, which has the same share of the rollouts in a minute; 0 lets a namespace have all that no
    /// other one waits for [default: four fifths of --max-concurrent-rollouts]
    #[arg(long, env = "ROLLOUT_CONCURRENT_PER_NAMESPACE", value_name = "NUMBER")]
    pub concurrent_per_namespace: Option<usize>,
    /// The operator stops following a key of a Secret or `ConfigMap`, or a path in Vault, that changes this often within a minute, until it is quiet; 0 follows all
    #[arg(long, env = "ROLLOUT_RUNAWAY_CHANGES", default_value_t = 10, value_name = "NUMBER")]
    pub runaway_changes: usize,
    /// How long a source must stay unchanged before the operator follows it again
    #[arg(long, env = "ROLLOUT_RUNAWAY_QUIET", default_value = "1m", value_parser = span, value_name = "TIME")]
    pub runaway_quiet: SignedDuration,
}

impl Pace {
    /// When a source has run away.
    pub fn breaker(&self) -> breaker::Settings {
        let Self { runaway_changes: changes, runaway_quiet: quiet, .. } = *self;
        breaker::Settings { changes, within: SignedDuration::from_mins(1), quiet }
    }

    /// How many rollouts there may be. 0 means no limit.
    pub fn limits(&self) -> Limits {
        let limit = |most: usize| Some(most).filter(|most| *most > 0);
        let concurrent = limit(self.max_concurrent_rollouts);
        // The rest is for other namespaces, which begin at once even if rollouts of this one hang.
        let share =
            || concurrent.map(|all| all.saturating_mul(4).div_ceil(5)).filter(|share| Some(*share) < concurrent);
        Limits {
            per_minute: limit(self.max_rollouts_per_minute),
            concurrent,
            per_namespace: self.concurrent_per_namespace.map_or_else(share, limit),
            timeout: self.rollout_timeout,
        }
    }
}

/// Variables of earlier versions, and their names now.
const RENAMED_VARIABLES: [(&str, &str); 4] = [
    ("ROLLOUT_BIND_ADDRESS", "ROLLOUT_HEALTH_PROBE_BIND_ADDRESS"),
    ("ROLLOUT_LONGEST", "ROLLOUT_TIMEOUT"),
    ("ROLLOUT_IN_A_MINUTE", "ROLLOUT_MAX_PER_MINUTE"),
    ("ROLLOUT_AT_ONCE", "ROLLOUT_MAX_CONCURRENT"),
];

/// Returns a warning for each variable of an earlier version that is set, because it has no effect any more.
pub fn renamed_variables(is_set: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
    let old = RENAMED_VARIABLES.into_iter().filter(move |(old, _)| is_set(old));
    old.map(|(old, new)| format!("the variable {old} has no effect; its name is {new} now"))
}

/// The settings of the command line and the environment. Prints what is asked for (help, version) or what is wrong, and ends
/// the program then.
pub fn arguments(arguments: impl IntoIterator<Item = OsString>) -> Config {
    variables::parse_from(arguments).unwrap_or_else(|error| error.exit())
}

impl Settings for Config {
    const LEASE: &'static str = PROGRAM;
    const SHARED: Shared = Shared { addresses: &["bind_address", "metrics_bind_address"], of_process: &["log_format"] };

    fn program(&self) -> Program {
        Program {
            name: PROGRAM,
            lease: self.leader_elect.then_some(Self::LEASE),
            address: self.bind_address,
            metrics: self.metrics.options(),
            kubeconfig: self.kubeconfig.clone(),
        }
    }

    fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

/// The settings in force, for the log. There is no secret among them.
impl fmt::Display for Config {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

impl Config {
    /// The tools whose annotations are understood.
    pub fn others(&self) -> Others {
        let tools = &self.tools;
        let reloader = || {
            let renamed = tools.reloader_annotation.iter().copied().fold(Reloader::DEFAULT, Reloader::rename);
            Reloader { auto_reload_all: tools.reloader_auto_reload_all, ..renamed }
        };
        Others { reloader: tools.reloader_annotations.then(reloader), wave: tools.wave_annotations }
    }
}

fn kind(text: &str) -> Result<WorkloadKind, String> {
    KINDS
        .into_iter()
        .find(|kind| kind.plural() == text)
        .ok_or_else(|| format!("write some of {}", KINDS.map(WorkloadKind::plural).join(",")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::annotations::{Annotations, SourceSpec, WorkloadSpec};

    fn parse(arguments: &[&str]) -> Result<Config, String> {
        Config::try_parse_from(["x"].iter().chain(arguments)).map_err(|error| error.to_string())
    }

    #[test]
    fn by_default_rollouts_have_an_interval_a_debounce_and_a_budget() {
        let config = parse(&[]).unwrap();
        assert_eq!(
            (config.pace.min_interval, config.pace.debounce),
            (SignedDuration::from_mins(1), SignedDuration::from_secs(1))
        );
        assert_eq!((config.pace.max_concurrent_rollouts, config.pace.max_rollouts_per_minute), (25, 100));
        assert_eq!(config.kinds.len(), 5);
        assert_eq!(config.others(), Others::default());
    }

    #[test]
    fn by_default_a_namespace_leaves_a_fifth_of_the_rollouts_to_others() {
        for (flags, expected) in [
            (&[][..], Some(20)),
            (&["--max-concurrent-rollouts=10"], Some(8)),
            // Too few to leave one out.
            (&["--max-concurrent-rollouts=4"], None),
            (&["--max-concurrent-rollouts=0"], None),
            (&["--concurrent-per-namespace=0"], None),
            (&["--concurrent-per-namespace=3"], Some(3)),
        ] {
            assert_eq!(parse(flags).unwrap().pace.limits().per_namespace, expected, "{flags:?}");
        }
    }

    #[test]
    fn flags_count_before_variables() {
        let variables = [
            ("ROLLOUT_MIN_INTERVAL", "5m"),
            ("ROLLOUT_DEBOUNCE", "3s"),
            ("ROLLOUT_LEADER_ELECT", "true"),
            ("ROLLOUT_WAVE_ANNOTATIONS", "false"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let of = |line: &str| {
            let arguments: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            Config::of_container(&arguments, &variables)
        };
        let config = of("--min-interval=2m --namespace shop").unwrap();
        assert_eq!(
            (config.pace.min_interval, config.pace.debounce),
            (SignedDuration::from_mins(2), SignedDuration::from_secs(3))
        );
        assert_eq!((config.leader_elect, config.tools.wave_annotations), (true, false));
        assert_eq!(config.namespace.as_deref(), Some("shop"));
        assert!(of("--no-such-flag").is_err());
    }

    #[test]
    fn reloaders_annotations_have_the_names_of_the_cluster() {
        let line = [
            "--reloader-annotations",
            "--reloader-annotation=reloader.stakater.com/auto=a/b,reloader.stakater.com/match=c",
        ];
        let others = parse(&line).unwrap().others();
        let annotations = |name: &str| [(name.to_owned(), "true".to_owned())].into();
        let requests = |name| {
            WorkloadSpec::read(&annotations(name), &Annotations::new(), "shop", others).unwrap().requests_rollouts()
        };
        assert!(requests("a/b") && requests("reloader.stakater.com/search") && !requests("reloader.stakater.com/auto"));
        assert!(SourceSpec::read(&annotations("c"), others).unwrap().matches);
        assert!(
            parse(&line[1..]).unwrap_err().contains("--reloader-annotations"),
            "without that flag none is followed"
        );
    }

    #[test]
    fn a_variable_of_an_earlier_version_is_told_with_its_new_name() {
        let known = Config::command();
        let is_known =
            |name: &str| known.get_arguments().any(|argument| argument.get_env().is_some_and(|env| env == name));
        for (old, new) in RENAMED_VARIABLES {
            assert!(is_known(new) && !is_known(old), "{old}, {new}");
        }
        let told: Vec<_> = renamed_variables(|name| name == "ROLLOUT_LONGEST").collect();
        assert_eq!(told, ["the variable ROLLOUT_LONGEST has no effect; its name is ROLLOUT_TIMEOUT now"]);
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        for (flag, value, part) in [
            ("--kinds", "deployments,jobs", "deployments,statefulsets"),
            ("--min-interval", "-1m", "span of time"),
            ("--namespace", "Shop", "Shop"),
            ("--max-concurrent-rollouts", "-1", "--max-concurrent-rollouts"),
            ("--reloader-annotation", "example.com/a=b", "reloader.stakater.com/auto, "),
            ("--reloader-annotation", "reloader.stakater.com/auto=", "name of an annotation"),
            ("--reloader-annotation", "reloader.stakater.com/auto", "NAME=YOURS"),
        ] {
            let told = parse(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(told.contains(flag) && told.contains(part), "{told}");
        }
    }
}

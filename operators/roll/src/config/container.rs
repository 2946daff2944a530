//! The settings of an operator that runs elsewhere.

use std::collections::BTreeMap;

use konverge_runtime::container;

use super::Config;

impl Config {
    /// The settings of an operator with these arguments and variables. An error if it would not start with them.
    pub fn of_container(arguments: &[String], variables: &BTreeMap<String, String>) -> Result<Self, clap::Error> {
        container::settings(arguments, variables, |_, line| line)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

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
}

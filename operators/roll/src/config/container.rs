//! The settings of a container, read by somebody else.

use std::collections::BTreeMap;

use clap::{ArgAction, CommandFactory, FromArgMatches, parser::ValueSource};

use super::Config;

impl Config {
    /// The settings that a container with these arguments and variables has. The variables of the reader's own process do not count.
    pub fn of_container(arguments: &[String], variables: &BTreeMap<String, String>) -> Result<Self, clap::Error> {
        let own = Self::command();
        let blind = own.clone().mut_args(|argument| argument.env(None::<&'static str>));
        let started = |added: Vec<String>| {
            let line = ["vault-rollout-operator".to_owned()].into_iter().chain(added).chain(arguments.iter().cloned());
            blind.clone().try_get_matches_from(line)
        };
        let given = started(Vec::new())?;
        // A variable counts where the flag is not given.
        let of_variable = own.get_arguments().filter_map(|argument| {
            let value = variables.get(argument.get_env()?.to_str()?)?;
            let is_given = given.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine);
            let flag = format!("--{}", argument.get_long()?);
            let added = match argument.get_action() {
                ArgAction::SetTrue => (value == "true").then_some(flag),
                _ => Some(format!("{flag}={value}")),
            };
            added.filter(|_| !is_given)
        });
        Self::from_arg_matches(&started(of_variable.collect())?)
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
            (config.min_interval, config.debounce),
            (SignedDuration::from_mins(2), SignedDuration::from_secs(3))
        );
        assert_eq!((config.leader_elect, config.wave_annotations), (true, false));
        assert_eq!(config.namespace.as_deref(), Some("shop"));
        assert!(of("--no-such-flag").is_err());
    }
}

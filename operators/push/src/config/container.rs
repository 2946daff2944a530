//! The settings of an operator that runs elsewhere.

use std::collections::BTreeMap;

use konverge_jobs::go_flags;
use konverge_runtime::container;

use super::Config;

impl Config {
    /// The settings of an operator with these arguments and variables. An error if it would not start with them.
    pub fn of_container(arguments: &[String], variables: &BTreeMap<String, String>) -> Result<Self, clap::Error> {
        container::settings(arguments, variables, go_flags::normalised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::BinaryPolicy;

    #[test]
    fn flags_count_before_variables() {
        let variables = BTreeMap::from(
            [
                ("VAULT_SYNC_CLUSTER_NAME", "one"),
                ("VAULT_SYNC_BINARY", "refuse"),
                ("VAULT_SYNC_ALLOW_PATH", "*=a/*,b=c"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let arguments = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let config = Config::of_container(&arguments("-cluster-name two -leader-elect"), &variables).unwrap();
        assert_eq!(config.push.cluster(), Some("two"));
        assert!(config.server.leader_elect);
        assert_eq!(config.push.binary, BinaryPolicy::Refuse);
        assert_eq!(config.push.allow_path.iter().map(ToString::to_string).collect::<Vec<_>>(), ["*=a/*", "b=c"]);
        let config = Config::of_container(&arguments("--allow-path=x=y"), &variables).unwrap();
        assert_eq!(config.push.allow_path.iter().map(ToString::to_string).collect::<Vec<_>>(), ["x=y"]);
        assert!(Config::of_container(&arguments("--no-such-flag"), &variables).is_err());
    }
}

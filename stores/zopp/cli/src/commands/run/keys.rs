//! The keys of an environment that become variables of the command, and those that are refused.
//!
//! A writer of secrets is not the person who runs the command. Some variables let the writer run code or write a file on that person's
//! machine. A declaration in `zopp.toml` names the keys that `run` passes, and excludes all others. The file can only exclude keys. Only
//! the command line permits a key that steers programs, because a file in a parent directory may belong to another user.

use std::collections::BTreeSet;

use clap::Args;
use konverge_zopp_client::EnvironmentName;

use crate::{
    failure::Failure,
    project_file::KeyPattern,
    steering::{AllowedKeys, steers_programs},
};

/// `--only`, `--prefix` and `--allow-key`.
#[derive(Debug, Default, Args)]
pub(super) struct Choice {
    /// Only these keys, separated by commas; may be repeated, and combined with --prefix
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    only: Vec<String>,
    /// Only keys that begin with this; may be repeated, and combined with --only
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    prefix: Vec<String>,
    /// The keys that are passed although they steer programs.
    #[command(flatten)]
    allowed: AllowedKeys,
}

/// The keys of an environment, sorted by what `run` does with them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen<'a> {
    /// The keys to set.
    pub(super) passed: BTreeSet<&'a str>,
    /// The keys that the project file does not declare.
    pub(super) undeclared: BTreeSet<&'a str>,
}

/// The reason why the command is not run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The environment lacks keys that `--only` names.
    Missing(Vec<String>),
    /// Keys would let their writer control programs.
    SteersPrograms(Vec<String>),
}

impl Choice {
    /// Returns `true` if the command line chooses keys, so that the project file does not count.
    pub(super) fn is_given(&self) -> bool {
        !self.only.is_empty() || !self.prefix.is_empty()
    }

    /// Returns the keys to set. `declared` is the declaration of the project file.
    pub(super) fn apply<'a>(&self, keys: &[&'a str], declared: Option<&[KeyPattern]>) -> Result<Chosen<'a>, Refused> {
        let missing: Vec<_> = self.only.iter().filter(|key| !keys.contains(&key.as_str())).cloned().collect();
        if !missing.is_empty() {
            return Err(Refused::Missing(missing));
        }
        let is_allowed = |key: &str| self.allowed.contains(key);
        let is_declared = |key: &str| match declared {
            Some(patterns) if !self.is_given() => {
                is_allowed(key) || patterns.iter().any(|pattern| pattern.matches(key))
            }
            _ => true,
        };
        let (passed, undeclared): (BTreeSet<_>, BTreeSet<_>) =
            keys.iter().copied().filter(|key| self.chooses(key)).partition(|key| is_declared(key));
        let refused: Vec<_> =
            passed.iter().filter(|key| steers_programs(key) && !is_allowed(key)).map(ToString::to_string).collect();
        if refused.is_empty() { Ok(Chosen { passed, undeclared }) } else { Err(Refused::SteersPrograms(refused)) }
    }

    fn chooses(&self, key: &str) -> bool {
        !self.is_given()
            || self.only.iter().any(|only| only == key)
            || self.prefix.iter().any(|prefix| key.starts_with(prefix.as_str()))
    }
}

impl Refused {
    pub(super) fn into_failure(self, name: &EnvironmentName) -> Failure {
        match self {
            Self::Missing(keys) => Failure::new(format!("{name} has no secret '{}'", keys.join("', '")))
                .next("zopp secret list shows them."),
            Self::SteersPrograms(keys) => Failure::new(format!(
                "the command is not run: in {name}, '{}' can make programs run code or write files",
                keys.join("', '")
            ))
            .next(format!(
                "If its writers may do that: --allow-key {}. Otherwise choose other keys with --only or --prefix, or declare them in \
                 zopp.toml under [run].",
                keys.join(",")
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(only: &[&str], prefix: &[&str], allow_key: &[&str]) -> Choice {
        let owned = |texts: &[&str]| texts.iter().copied().map(str::to_owned).collect();
        let allowed = AllowedKeys { allow_key: owned(allow_key) };
        Choice { only: owned(only), prefix: owned(prefix), allowed }
    }

    fn patterns(texts: &[&str]) -> Vec<KeyPattern> {
        texts.iter().map(|text| KeyPattern::try_from((*text).to_owned()).unwrap()).collect()
    }

    #[test]
    fn only_and_prefix_add_up() {
        let keys = ["API_KEY", "DB_NAME", "DB_USER", "PATH"];
        let chosen = |only: &[&str], prefix: &[&str]| {
            let chosen = choice(only, prefix, &["PATH"]).apply(&keys, None);
            chosen.map(|chosen| chosen.passed.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[], &[]).unwrap(), keys);
        assert_eq!(chosen(&["API_KEY"], &[]).unwrap(), ["API_KEY"]);
        assert_eq!(chosen(&[], &["DB_"]).unwrap(), ["DB_NAME", "DB_USER"]);
        assert_eq!(chosen(&["API_KEY"], &["DB_"]).unwrap(), ["API_KEY", "DB_NAME", "DB_USER"]);
        assert_eq!(chosen(&["API_KEY", "GONE"], &[]), Err(Refused::Missing(vec!["GONE".to_owned()])));
    }

    #[test]
    fn a_key_is_refused_if_it_is_chosen_and_not_allowed_by_its_own_name() {
        let keys = ["A", "LD_PRELOAD", "PATH"];
        let refused = |keys: &[&str]| Err(Refused::SteersPrograms(keys.iter().copied().map(str::to_owned).collect()));
        assert_eq!(choice(&[], &[], &[]).apply(&keys, None), refused(&["LD_PRELOAD", "PATH"]));
        assert_eq!(choice(&[], &[], &["PATH"]).apply(&keys, None), refused(&["LD_PRELOAD"]));
        assert_eq!(choice(&[], &[], &["LD_"]).apply(&keys, None), refused(&["LD_PRELOAD", "PATH"]));
        assert_eq!(choice(&["A"], &[], &[]).apply(&keys, None).unwrap().passed.len(), 1);
        assert_eq!(
            choice(&["PATH"], &[], &[]).apply(&keys, None),
            refused(&["PATH"]),
            "to choose a key is not to allow it"
        );
    }

    #[test]
    fn a_declaration_leaves_out_other_keys_and_permits_none() {
        let keys = ["APP_NAME", "DATABASE_URL", "LD_PRELOAD", "PATH"];
        let declared = patterns(&["APP_*", "DATABASE_URL"]);
        let apply = |choice: &Choice, declared: &[KeyPattern]| {
            let chosen = choice.apply(&keys, Some(declared))?;
            Ok((chosen.passed.into_iter().collect::<Vec<_>>(), chosen.undeclared.into_iter().collect::<Vec<_>>()))
        };
        let refused = Err(Refused::SteersPrograms(vec!["PATH".to_owned()]));
        assert_eq!(
            apply(&choice(&[], &[], &[]), &declared),
            Ok((vec!["APP_NAME", "DATABASE_URL"], vec!["LD_PRELOAD", "PATH"]))
        );
        assert_eq!(apply(&choice(&[], &[], &["PATH"]), &declared).unwrap().1, ["LD_PRELOAD"]);
        assert_eq!(apply(&choice(&[], &[], &[]), &patterns(&["PATH"])), refused, "a file permits nothing");
        assert_eq!(apply(&choice(&[], &[], &[]), &[]).unwrap().0, Vec::<&str>::new());
        assert_eq!(apply(&choice(&["PATH"], &[], &[]), &declared), refused, "the command line counts more");
    }
}

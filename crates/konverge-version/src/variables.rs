//! Flags that environment variables can set.

use std::ffi::OsString;

use clap::{Command, CommandFactory, Error, FromArgMatches};

/// Parses a command line as clap does, but ignores [empty variables](ignore_empty).
///
/// # Errors
///
/// Returns an error for an invalid command line, and for one that requests the help or the version.
pub fn parse_from<T: CommandFactory + FromArgMatches>(
    line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<T, Error> {
    let mut command = ignore_empty(T::command());
    let matches = command.try_get_matches_from_mut(line)?;
    T::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Returns the command without its empty variables, so that `ZOPP_TLS_CA_CERT=` in a script counts as unset. clap itself takes an empty
/// string as a value.
#[must_use]
pub fn ignore_empty(command: Command) -> Command {
    let is_empty = |name: &std::ffi::OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    command
        .mut_args(
            |argument| {
                if argument.get_env().is_some_and(is_empty) { argument.env(None::<&'static str>) } else { argument }
            },
        )
        .mut_subcommands(ignore_empty)
}

//! Flags that environment variables can set.

use clap::Command;

/// Returns the command without the variables that are empty: a script that writes `ZOPP_TLS_CA_CERT=` sets nothing. clap itself takes an
/// empty text for a value.
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

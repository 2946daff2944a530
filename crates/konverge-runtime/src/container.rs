//! The settings of a program that runs elsewhere, from what its container is started with. Pure: this process's own variables do not count.

use std::{collections::BTreeMap, ffi::OsString};

use clap::{ArgAction, ArgMatches, Command, CommandFactory, Error, FromArgMatches, parser::ValueSource};

/// Returns the settings of a program with these arguments and variables. `normalised` changes a whole line before it is read, for programs that
/// accept more than clap does.
///
/// # Errors
///
/// Returns an error if the program would not start with them.
pub fn settings<C: CommandFactory + FromArgMatches>(
    arguments: &[String],
    variables: &BTreeMap<String, String>,
    normalised: impl Fn(&Command, Vec<OsString>) -> Vec<OsString>,
) -> Result<C, Error> {
    let command = C::command();
    let matches = matches(&command, variables, |added| {
        let given = arguments.iter().map(OsString::from);
        let line = [OsString::from(command.get_name())].into_iter().chain(added).chain(given);
        normalised(&command, line.collect())
    });
    C::from_arg_matches(&matches?)
}

/// Returns the limits that a program with this command line and these variables finds. `line` makes the whole line, beginning with the program's name, of what
/// comes before the container's own arguments. An error if it would not start with them.
pub fn matches(
    command: &Command,
    variables: &BTreeMap<String, String>,
    line: impl Fn(Vec<OsString>) -> Vec<OsString>,
) -> Result<ArgMatches, Error> {
    let blind = command.clone().mut_args(|argument| argument.env(None::<&'static str>));
    let started = |added| blind.clone().try_get_matches_from(line(added));
    let given = started(Vec::new())?;
    // A variable counts where the flag is not given.
    let of_variable = command.get_arguments().filter_map(|argument| {
        // An empty variable counts as unset.
        let value = variables.get(argument.get_env()?.to_str()?).filter(|value| !value.is_empty())?;
        let is_given = given.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine);
        let flag = format!("--{}", argument.get_long()?);
        let added = match argument.get_action() {
            ArgAction::SetTrue => (value == "true").then_some(flag),
            _ => Some(format!("{flag}={value}")),
        };
        added.filter(|_| !is_given).map(OsString::from)
    });
    started(of_variable.collect())
}

//! The command line of a program.

#[cfg(feature = "generate")]
mod generate;

use std::{ffi::OsString, process::ExitCode};

use clap::{Args, Command, FromArgMatches};
use konverge_core::error::in_one_line;
use konverge_version::variables;

use crate::{Operator, options::Options};

/// Does what the arguments say: runs until a signal, or generates.
pub(crate) fn execute(
    mut operator: Operator,
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> ExitCode {
    let matches = variables::ignore_empty(command(&operator)).get_matches_from(arguments);
    #[cfg(feature = "generate")]
    if let Some(matches) = matches.subcommand_matches(generate::VERB) {
        let ended = generate::execute(operator, matches);
        return exit_code(ended.map_err(|error| (in_one_line(&error), crate::exit::FAILED)));
    }
    let options = Options::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    operator.flags.read(&matches).unwrap_or_else(|error| error.exit());
    let ended = operator.run(options);
    exit_code(ended.map_err(|error| (in_one_line(&error), error.exit_code())))
}

pub(crate) fn command(operator: &Operator) -> Command {
    let command = Command::new(operator.program).version(operator.version).args_conflicts_with_subcommands(true);
    let command = Options::augment_args(command.subcommand_negates_reqs(true)).about(None).long_about(None);
    #[cfg(feature = "generate")]
    let command = command.subcommand(generate::verb());
    let command = operator.flags.augment(command);
    #[cfg(feature = "otlp")]
    let command = command.mut_arg("otlp_endpoint", |argument| argument.hide(!operator.sends_traces));
    operator.parts.iter().fold(command, |command, part| part.command(command))
}

fn exit_code(ended: Result<(), (String, u8)>) -> ExitCode {
    let Err((error, code)) = ended else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    ExitCode::from(code)
}

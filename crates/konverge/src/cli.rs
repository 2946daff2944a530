//! The command line of a program.

#[cfg(feature = "generate")]
mod generate;

use std::{ffi::OsString, process::ExitCode};

use clap::{ArgMatches, Args, Command, FromArgMatches};
use konverge_core::error::in_one_line;

use crate::{Operator, options::Options};

impl Operator {
    /// Adds flags to the command line: an `Args` of clap's, each flag with a variable of its own if it says so. Reconcilers read the values with
    /// [`Context::flags`](crate::Context::flags), parts with [`Setup::flags`](crate::Setup::flags).
    #[must_use]
    pub fn flags<F: Args + Send + Sync + 'static>(mut self) -> Self {
        self.flags.declare::<F>();
        self
    }

    /// Parses the command line and obeys it: runs until a signal, or generates. Prints an error to standard error and returns its kind as
    /// the exit code: see [`StartError::exit_code`](crate::StartError::exit_code).
    pub fn main(self) -> ExitCode {
        self.main_with(std::env::args_os())
    }

    /// [`main`](Self::main) with other arguments than those of the process. The first is the name of the program.
    pub fn main_with(self, arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
        let matches = self.command().get_matches_from(arguments);
        #[cfg(feature = "generate")]
        if let Some(matches) = matches.subcommand_matches(generate::VERB) {
            let ended = self.generate_as_told(matches);
            return exit_code(ended.map_err(|error| (in_one_line(&error), crate::exit::FAILED)));
        }
        let options = Options::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let ended = self.read_flags(&matches).run(options);
        exit_code(ended.map_err(|error| (in_one_line(&error), error.exit_code())))
    }

    fn read_flags(mut self, matches: &ArgMatches) -> Self {
        self.flags.read(matches).unwrap_or_else(|error| error.exit());
        self
    }

    pub(crate) fn command(&self) -> Command {
        let command = Command::new(self.program).version(self.version).args_conflicts_with_subcommands(true);
        let command = Options::augment_args(command.subcommand_negates_reqs(true)).about(None).long_about(None);
        #[cfg(feature = "generate")]
        let command = command.subcommand(generate::verb());
        let command = self.flags.augment(command);
        #[cfg(feature = "otlp")]
        let command = command.mut_arg("otlp_endpoint", |argument| argument.hide(!self.sends_traces));
        self.parts.iter().fold(command, |command, part| part.command(command))
    }
}

fn exit_code(ended: Result<(), (String, u8)>) -> ExitCode {
    let Err((error, code)) = ended else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    ExitCode::from(code)
}

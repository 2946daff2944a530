//! The command line.
//!
//! `--output text|json|yaml|table` is accepted at every place. `secret export` takes a file there, too, as the original does, if it is not called like a
//! format. `--format` means the same.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches, Parser, builder::EnumValueParser};
use konverge_version::variables;

use crate::{commands::Command, output::Format, server::ServerArguments};

const EXAMPLES: &str = "\
Examples:
  zopp join <invite> alice@example.com          become somebody on this device
  zopp workspace create acme
  zopp secret set DATABASE_URL -w acme -p backend -e dev    asks for the value
  zopp secret list --output json
  zopp run -- ./server                          with all secrets in its environment

Workspace, project and environment come from the flags -w, -p and -e, else from ZOPP_WORKSPACE,
ZOPP_PROJECT and ZOPP_ENVIRONMENT, else from the nearest zopp.toml (zopp.yaml, zopp.yml, zopp.json)
at or above the working directory:
  [defaults]
  workspace = \"acme\"
The search ends at the directory with .git. A file that another user owns or may write is refused,
unless ZOPP_SAFE_DIRECTORY names its directory (several with a colon between).

Principals and their keys are in ~/.zopp/config.json.";

const FORMAT: &str = "output-format";

/// Secrets that only their owners can read.
#[derive(Debug, Parser)]
#[command(name = "zopp", version = konverge_version::line(), about, after_help = EXAMPLES, propagate_version = false)]
pub struct Arguments {
    /// Where the server is.
    #[command(flatten)]
    pub server: ServerArguments,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Parses this process's arguments; ends the process with code 2 if they make no sense. `program` is the name that `--version` prints.
pub fn parse(program: &'static str) -> (Arguments, Format) {
    let matches = command().name(program).get_matches();
    let format = chosen_format(&matches);
    match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => (arguments, format),
        Err(error) => error.exit(),
    }
}

/// Returns the command line with all commands.
pub fn command() -> clap::Command {
    accept_format(variables::ignore_empty(Arguments::command()), "")
}

/// Adds `--output` to a command and all below it.
fn accept_format(command: clap::Command, parent: &str) -> clap::Command {
    let own = command.get_name().to_owned();
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let command = names
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, |below| accept_format(below, &own)));
    // Everything behind "run" belongs to the command that is run. An exported record is JSON lines and nothing else: hashes are of them.
    if own == "run" || (parent, own.as_str()) == ("audit", "export") {
        return command;
    }
    let has_own = command.get_arguments().any(|argument| argument.get_long() == Some("output"));
    let format = Arg::new(FORMAT)
        .value_name("FORMAT")
        .value_parser(EnumValueParser::<Format>::new())
        .help("How to print the answer [default: text]");
    command.arg(if has_own { format.long("format") } else { format.long("output").visible_alias("format") })
}

/// The innermost one given.
fn chosen_format(matches: &ArgMatches) -> Format {
    // A command without the flag prints in one way only.
    let given = matches.try_get_one::<Format>(FORMAT).ok();
    let here = given.and_then(|given| given.copied().or_else(|| of_own_output(matches))).unwrap_or_default();
    match matches.subcommand() {
        Some((_, below)) if chosen_format(below) != Format::default() => chosen_format(below),
        _ => here,
    }
}

/// The format that a command's own `--output` names.
fn of_own_output(matches: &ArgMatches) -> Option<Format> {
    Format::named(matches.try_get_one::<PathBuf>("output").ok()??.as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::secret::SecretCommand;

    fn parse(line: &str) -> Result<(Arguments, Format), clap::Error> {
        let matches = command().try_get_matches_from(line.split(' '))?;
        Ok((Arguments::from_arg_matches(&matches)?, chosen_format(&matches)))
    }

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    /// Where the terminal's width is not known, clap breaks longer lines once more.
    #[test]
    fn no_line_of_the_examples_is_broken() {
        let mut commands = vec![command()];
        while let Some(command) = commands.pop() {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in after.lines() {
                assert!(line.chars().count() < 100, "{}: {line}", command.get_name());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn the_format_is_accepted_everywhere() {
        let format = |line: &str| parse(line).unwrap().1;
        assert_eq!(format("zopp workspace list"), Format::Text);
        assert_eq!(format("zopp workspace list --output json"), Format::Json);
        assert_eq!(format("zopp workspace --output json list"), Format::Json);
        assert_eq!(format("zopp --output json workspace list"), Format::Json);
        assert_eq!(format("zopp --output json secret export --output file"), Format::Json);
        assert_eq!(format("zopp secret export --output json"), Format::Json);
        assert_eq!(format("zopp secret export -o .env"), Format::Text);
        assert_eq!(format("zopp --output yaml secret export -o .env"), Format::Yaml);
        assert_eq!(format("zopp audit export --output json"), Format::Text);
        assert_eq!(format("zopp workspace list --output yaml"), Format::Yaml);
        assert_eq!(format("zopp secret export --format yaml --output file"), Format::Yaml);
        assert_eq!(format("zopp workspace --format table list"), Format::Table);
        assert!(parse("zopp workspace list --output toml").is_err());
    }

    #[test]
    fn what_is_behind_run_belongs_to_the_command() {
        let (arguments, format) = parse("zopp run -w acme kubectl --output json -w --server x").unwrap();
        let Command::Run(run) = arguments.command else { panic!("not run") };
        assert_eq!(format, Format::Text);
        assert_eq!(run.command, ["kubectl", "--output", "json", "-w", "--server", "x"]);
    }

    #[test]
    fn values_may_begin_with_a_dash_and_flags_stay_flags() {
        let set = |line: &str| {
            let Command::Secret(SecretCommand::Set(set)) = parse(line).unwrap().0.command else { panic!("not set") };
            (set.value, set.environment.workspace)
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(set("zopp secret set K -secret"), (text("-secret"), None));
        assert_eq!(set("zopp secret set K --secret -w acme"), (text("--secret"), text("acme")));
        assert_eq!(set("zopp secret set K -w acme"), (None, text("acme")));
        assert_eq!(set("zopp secret set -w acme K -"), (text("-"), text("acme")));
        assert_eq!(set("zopp secret set K -- -w"), (text("-w"), None));
    }

    #[test]
    fn globals_may_stand_before_and_behind() {
        assert_eq!(parse("zopp --server http://a:1 workspace list").unwrap().0.server.server, "http://a:1");
        assert_eq!(parse("zopp workspace list --server http://a:1").unwrap().0.server.server, "http://a:1");
    }
}

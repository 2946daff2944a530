//! `zopp run`: become another command, with an environment's secrets in its environment.
//!
//! This process is replaced, so that signals, terminal and exit code are the command's own and no process with keys in
//! its memory stays behind.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io::{self, ErrorKind},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    process::Command,
};

use clap::Args;

use self::keys::Choice;
use super::secret::snapshot;
use crate::{
    context::Context, escape::visible, failure::Failure, file_key, output::Outcome, project_file,
    scope::EnvironmentArguments,
};

mod keys;

const EXAMPLES: &str = r#"Examples:
  zopp run -e dev -- ./server --port 8080
  zopp run -w acme -p backend -e dev env
  zopp run --prefix DB_ --only API_KEY -- ./migrate

With [run] keys = ["DATABASE_URL", "APP_*"] in zopp.toml, only these keys become variables.

Anybody who may write a secret could run code on your machine if its key were LD_PRELOAD, PATH,
TAR_OPTIONS or the like. Such a key is an error unless --allow-key names it. No list of such
names is complete, so declare the keys in zopp.toml."#;

/// The exit code of `env(1)` for a command that cannot be started.
const CANNOT_START: u8 = 126;
/// The exit code of `env(1)` for a command that does not exist.
const NOT_FOUND: u8 = 127;

/// The maximum size of one variable on Linux with pages of 4 KiB (`MAX_ARG_STRLEN`, see `execve(2)`), in bytes.
const MAX_VARIABLE: usize = 32 * 4096;

/// The variables of the command, by key.
type Variables<'a> = BTreeMap<&'a str, &'a [u8]>;

/// `zopp run`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArguments {
    #[command(flatten)]
    environment: EnvironmentArguments,
    /// Which keys.
    #[command(flatten)]
    choice: Choice,
    /// Leave out secrets that cannot be variables, such as one with a zero byte
    #[arg(long)]
    skip_invalid: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

pub(super) async fn execute(context: &Context, arguments: RunArguments) -> Outcome {
    let RunArguments { environment, choice, skip_invalid, command } = arguments;
    let name = environment.resolve_for_values()?;
    let snapshot = snapshot(&context.client()?, &name).await?;
    let [program, arguments @ ..] = command.as_slice() else {
        return Err(Failure::usage("no command is given"));
    };
    let keys: Vec<&str> = snapshot.values.keys().map(String::as_str).collect();
    let declared =
        if choice.is_given() { None } else { project_file::of_process()?.and_then(|found| found.settings.run.keys) };
    let chosen = choice.apply(&keys, declared.as_deref()).map_err(|refused| refused.into_failure(&name))?;
    if !chosen.undeclared.is_empty() {
        let keys: Vec<_> = chosen.undeclared.iter().map(|key| visible(key)).collect();
        eprintln!(
            "Note: the project file does not declare these keys under [run], so the command does not get them: {}",
            keys.join(", ")
        );
    }
    let all = snapshot.values.iter().map(|(key, value)| (key.as_str(), value.expose()));
    let mut variables: Variables<'_> = all.filter(|(key, _)| chosen.passed.contains(key)).collect();
    let invalid: Vec<_> = variables.iter().filter_map(|(key, value)| Some((*key, impossible(key, value)?))).collect();
    leave_out(&mut variables, &invalid, skip_invalid)?;
    // Code after the exec of the command does not run.
    context.remember_if_writable()?;
    let mut source = become_command(program, arguments, &variables);
    if source.kind() == ErrorKind::ArgumentListTooLong {
        let large: Vec<_> = variables.iter().filter_map(|(key, value)| Some((*key, too_large(key, value)?))).collect();
        if !large.is_empty() {
            leave_out(&mut variables, &large, skip_invalid).map_err(|failure| failure.exit_code(CANNOT_START))?;
            source = become_command(program, arguments, &variables);
        }
    }
    let code = if source.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_START };
    let next = (source.kind() == ErrorKind::ArgumentListTooLong)
        .then_some("All variables and arguments together are too large. Choose keys with --only or --prefix.");
    let failure = Failure::new(format!("cannot run {}", program.display())).because(source).exit_code(code);
    Err(match next {
        Some(next) => failure.next(next),
        None => failure,
    })
}

/// Replaces this process with the command. Returns only if that failed.
fn become_command(program: &OsStr, arguments: &[OsString], variables: &Variables<'_>) -> io::Error {
    let variables = variables.iter().map(|(key, value)| (key, OsStr::from_bytes(value)));
    // The passphrase of this device's keys is for zopp, not for the command.
    Command::new(program).args(arguments).env_remove(file_key::VARIABLE).envs(variables).exec()
}

/// Removes the invalid keys with a note if the user asks for it, or fails and names them.
fn leave_out<'a>(
    variables: &mut Variables<'a>,
    invalid: &[(&'a str, &str)],
    skip_invalid: bool,
) -> Result<(), Failure> {
    if invalid.is_empty() {
        return Ok(());
    }
    if !skip_invalid {
        let what: Vec<_> =
            invalid.iter().map(|(key, why)| format!("secret '{key}' cannot become a variable: {why}")).collect();
        return Err(Failure::new(what.join("; ")).next("To run the command without it: --skip-invalid."));
    }
    for (key, why) in invalid {
        eprintln!("Note: the command does not get secret '{}', because {why}", visible(key));
        variables.remove(key);
    }
    Ok(())
}

/// Returns the reason why no process can have the variable in its environment.
fn impossible(key: &str, value: &[u8]) -> Option<&'static str> {
    if key.is_empty() || key.contains(['=', '\0']) {
        Some("its name cannot be that of an environment variable")
    } else if value.contains(&0) {
        Some("its value contains a zero byte")
    } else {
        None
    }
}

/// Returns the reason why Linux refuses the variable. Larger pages raise the limit, so call it only after a refusal.
fn too_large(key: &str, value: &[u8]) -> Option<&'static str> {
    let length = key.len() + "=".len() + value.len() + "\0".len();
    (length > MAX_VARIABLE).then_some("its value is larger than the system allows")
}

//! `zopp run`: become another command, with an environment's secrets in its environment.
//!
//! This process is replaced, so that signals, terminal and exit code are the command's own and no process with keys in
//! its memory stays behind.

use std::{
    ffi::{OsStr, OsString},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    process::Command,
};

use clap::Args;

use self::keys::Choice;
use super::secret::snapshot;
use crate::{context::Context, failure::Failure, file_key, output::Outcome, scope::EnvironmentArguments};

mod keys;

const EXAMPLES: &str = "\
Examples:
  zopp run -e dev -- ./server --port 8080
  zopp run -w acme -p backend -e dev env
  zopp run --prefix DB_ --only API_KEY -- ./migrate

Anybody who may write a secret would choose the code that runs if its key were LD_PRELOAD, PATH,
NODE_OPTIONS or the like. Such a key is an error unless --allow-key names it.";

/// `zopp run`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArguments {
    #[command(flatten)]
    environment: EnvironmentArguments,
    /// Which keys.
    #[command(flatten)]
    choice: Choice,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

pub(super) async fn execute(context: &Context, arguments: RunArguments) -> Outcome {
    let RunArguments { environment, choice, command } = arguments;
    let name = environment.resolve()?;
    let snapshot = snapshot(&context.client()?, &name).await?;
    let [program, arguments @ ..] = command.as_slice() else {
        return Err(Failure::usage("no command is given"));
    };
    let keys: Vec<&str> = snapshot.values.keys().map(String::as_str).collect();
    let chosen = choice.apply(&keys).map_err(|refused| refused.into_failure(&name))?;
    let mut command = Command::new(program);
    // The passphrase of this device's keys is for zopp, and not for the command.
    command.args(arguments).env_remove(file_key::VARIABLE);
    for (key, value) in snapshot.values.iter().filter(|(key, _)| chosen.contains(key.as_str())) {
        refuse_impossible(key, value.expose())?;
        command.env(key, OsStr::from_bytes(value.expose()));
    }
    // Code after the exec of the command does not run.
    context.remember()?;
    // Returns only if it failed.
    let source = command.exec();
    Err(Failure::new(format!("cannot run {}", program.display())).because(source))
}

/// Names and values that no process can have in its environment.
fn refuse_impossible(key: &str, value: &[u8]) -> Result<(), Failure> {
    let what = if key.is_empty() || key.contains(['=', '\0']) {
        "its name cannot be that of an environment variable"
    } else if value.contains(&0) {
        "its value contains a zero byte"
    } else {
        return Ok(());
    };
    Err(Failure::new(format!("secret '{key}' cannot be put into the environment: {what}")))
}

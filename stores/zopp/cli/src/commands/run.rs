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
use crate::{
    context::Context, escape::visible, failure::Failure, file_key, output::Outcome, project_file,
    scope::EnvironmentArguments,
};

mod keys;
mod steering;

const EXAMPLES: &str = r#"Examples:
  zopp run -e dev -- ./server --port 8080
  zopp run -w acme -p backend -e dev env
  zopp run --prefix DB_ --only API_KEY -- ./migrate

With [run] keys = ["DATABASE_URL", "APP_*"] in zopp.toml, only these keys become variables.

Anybody who may write a secret could run code on your machine if its key were LD_PRELOAD, PATH,
TAR_OPTIONS or the like. Such a key is an error unless --allow-key names it. No list of such names is
complete, so declare the keys in zopp.toml."#;

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
    let declared = if choice.is_given() { None } else { project_file::of_process()?.run.keys };
    let chosen = choice.apply(&keys, declared.as_deref()).map_err(|refused| refused.into_failure(&name))?;
    if !chosen.undeclared.is_empty() {
        let keys: Vec<_> = chosen.undeclared.iter().map(|key| visible(key)).collect();
        eprintln!(
            "Note: the project file does not declare these keys under [run], so the command does not get them: {}",
            keys.join(", ")
        );
    }
    let mut command = Command::new(program);
    // The passphrase of this device's keys is for zopp, and not for the command.
    command.args(arguments).env_remove(file_key::VARIABLE);
    for (key, value) in snapshot.values.iter().filter(|(key, _)| chosen.passed.contains(key.as_str())) {
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

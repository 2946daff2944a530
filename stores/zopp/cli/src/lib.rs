//! The zopp command line.
//!
//! A command reads its arguments, calls the server in the name of the current principal, and returns one answer, which
//! is printed as text or as JSON. Keys and values are encrypted and decrypted here; the server sees neither.
//!
//! # Contract
//! - Standard output carries the answer only, standard error everything else.
//! - Exit code 0 for success, 1 for a failure (a line that begins with `Error:`, then what to do next), 2 for arguments
//!   that make no sense. A command that did only a part of its work prints its answer, and fails. `zopp run` becomes the command it runs and ends with that one's code.
//! - A flag counts more than its environment variable, which counts more than the project file.
//! - Nothing waits longer than the client's deadlines.
//!
//! # Reading order
//! [`arguments`] → [`commands`] → [`server`], [`context`], [`file_key`] and [`scope`] (their input) → [`output`] and [`failure`] (their
//! results, in a [`wiped`] buffer) → [`value`], [`prompt`], [`invite_code`], [`confirm`], [`escape`], [`dotenv`], [`project_file`], [`protected`], [`safe_file`], `steering` and
//! [`progress`].

use std::process::ExitCode;

pub mod arguments;
pub mod commands;
pub mod confirm;
pub mod context;
pub mod dotenv;
pub mod escape;
pub mod failure;
pub mod file_key;
pub mod invite_code;
pub mod output;
pub mod progress;
pub mod project_file;
pub mod prompt;
pub mod protected;
pub mod safe_file;
pub mod scope;
pub mod server;
mod steering;
pub mod value;
pub mod wiped;

/// Runs the command of this process's arguments. `kubernetes` has the verbs that need a cluster.
pub fn run<K: commands::k8s::Kubernetes>(kubernetes: &K) -> ExitCode {
    // Best effort: there is nothing that a user of a short command could do about the rest.
    let _ = konverge_zopp_memory::protect();
    let (arguments, format) = arguments::parse(K::PROGRAM);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(source) => return failure::Failure::new("no asynchronous runtime can be started").because(source).report(),
    };
    let answer =
        runtime.block_on(commands::execute(arguments.server, arguments.command, arguments::command(), kubernetes));
    let printed = answer.and_then(|answer| output::print(answer.as_ref(), format).map(|()| answer));
    match printed {
        Ok(answer) => answer.failure().map_or_else(|| ExitCode::from(answer.exit_code()), failure::Failure::report),
        Err(failure) => failure.report(),
    }
}

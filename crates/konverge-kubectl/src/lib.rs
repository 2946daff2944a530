//! The plugin of kubectl, without any job: its verbs, and what a job has to tell them.
//!
//! ```text
//! kubectl konverge VERB TYPE/NAME ─▶ cluster: the object ─▶ Job: how it stands, why, what would change ─▶ words or JSON
//! ```
//!
//! Begin with [`Job`], with which an operator's crate describes its objects, and [`Operator`], with which it describes its operator. A [`Kind`]
//! is a word that a person may type, and a [`Cluster`] the way to the API server. Each verb has a file.
//!
//! # Guarantees
//!
//! - Objects are listed by their metadata, page by page; a kind is read whole only where its job says so.
//!
//! - Only annotations of one object are changed, named by its uid. An object that was deleted and recreated meanwhile stays as it is.
//!
//! - The program ends with 0 if all is well, 1 if something is out of sync, and 2 if the command failed or the command line is wrong.

#![allow(
    clippy::format_push_string,
    reason = "a page of words is made once; what that allocates is nothing beside a request"
)]

mod approval;
mod arguments;
mod checks;
mod cluster;
mod events;
mod failure;
mod installation;
mod job;
mod kind;
mod migrate;
mod operator;
mod output;
mod permission;
mod target;
mod text;
mod verbs;

use std::{ffi::OsString, process::ExitCode};

use clap::{Command, CommandFactory};
use konverge_version::variables;

pub use approval::Approval;
pub use cluster::Cluster;
pub use events::{ReportedEvent, reported as reported_events, with_reason as events_with_reason};
pub use failure::Failure;
pub use installation::{Installation, Leader};
pub use job::{
    Change, Conversion, Difference, Fact, Finding, Grade, Job, Leftover, ObjectHealth, Place, PlannedChange,
    RequestedAction, Verdict,
};
pub use kind::{Detail, Kind};
pub use migrate::{Listed, Migrate, Migrated, Migration, annotations};
pub use operator::{Examined, Found, Installed, Objects, Operator, in_sync, named, operator_of};
pub use permission::Permission;
pub use text::{age, when};

use arguments::Arguments;

/// The exit code of a command that failed or was called wrongly. 1 is the answer that something is not well.
const FAILED: u8 = 2;

/// Returns the command line with all verbs.
pub fn command() -> Command {
    Arguments::command()
}

/// Runs the command that the command line requests, for these jobs.
pub async fn run(jobs: Vec<Box<dyn Examined>>, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = variables::parse_from(arguments).unwrap_or_else(|error: clap::Error| error.exit());
    exit_code(verbs::run(&jobs, arguments).await)
}

/// Prints the failure, if there is one.
fn exit_code(ended: Result<bool, Failure>) -> ExitCode {
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(FAILED)
        }
    }
}

//! The settings of a job: what those of all jobs have, and the two ways in which they are read besides the command line of a program of its own.

use std::{collections::BTreeMap, ffi::OsString, fmt};

use clap::{Command, CommandFactory, FromArgMatches};
use konverge_runtime::container;

use crate::{Program, Shared};

/// The settings of a job: flags, each with a variable. They are displayed in one line for the log, without a secret.
pub trait Settings: CommandFactory + FromArgMatches + fmt::Display + Sized + Send + 'static {
    /// The name of the operator's lease.
    const LEASE: &'static str;

    /// The flags that are another matter where the job is one of several.
    const SHARED: Shared;

    /// Returns the settings of the operator's program.
    fn program(&self) -> Program;

    /// Returns the only namespace that the operator watches, or `None` if it watches all.
    fn namespace(&self) -> Option<&str>;

    /// Returns a command line in the spelling of clap. Operators whose original takes the flags of Go have [`normalised`](crate::go_flags::normalised)
    /// here.
    fn spelled(_: &Command, line: Vec<OsString>) -> Vec<OsString> {
        line
    }

    /// Checks whether the job can be one of several with these settings.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot.
    fn check_as_job(&self) -> Result<(), clap::Error> {
        Ok(())
    }

    /// Returns the settings of an operator that runs elsewhere, from the arguments and the variables of its container.
    ///
    /// # Errors
    ///
    /// Returns an error if the operator would not start with them.
    fn of_container(arguments: &[String], variables: &BTreeMap<String, String>) -> Result<Self, clap::Error> {
        container::settings(arguments, variables, Self::spelled)
    }

    /// Returns the settings of the job of this name as one of several, from its command line, which begins with the name.
    ///
    /// # Errors
    ///
    /// Returns an error if the line cannot be understood, or if the job cannot be one of several with it.
    fn of_job(name: &'static str, line: Vec<OsString>) -> Result<Self, clap::Error> {
        let line = Self::spelled(&Self::command(), line);
        let settings = Self::from_arg_matches(&Self::SHARED.matches(name, Self::command(), line)?)?;
        settings.check_as_job()?;
        Ok(settings)
    }
}

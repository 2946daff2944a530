//! The description of a job by the operator's crate.

use std::{error::Error, ffi::OsString};

use futures::future::BoxFuture;
use konverge_runtime::Manager;

/// An operator that can be one of several in a process.
pub trait Job: Send + Sync {
    /// The first word of its command line.
    fn name(&self) -> &'static str;

    /// A summary in one line, and the program whose flags it has.
    fn about(&self) -> &'static str;

    /// Reads a command line, which begins with the name. Errors and requests such as `--help` are answered as by the job's own program.
    fn ready(&self, line: Vec<OsString>) -> Result<Ready, clap::Error>;
}

/// A job whose settings are known.
pub struct Ready {
    /// The settings, for the log; no secret is among them.
    pub settings: String,
    /// Puts it together, ready to run. Nothing is sent before it runs.
    pub manager: BoxFuture<'static, Result<Manager, Box<dyn Error + Send + Sync>>>,
}

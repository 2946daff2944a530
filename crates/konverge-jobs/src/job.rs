//! The description of a job by the operator's crate.

use std::{error::Error, ffi::OsString};

use futures::future::BoxFuture;
use konverge_runtime::Manager;

use crate::Settings;

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

impl Ready {
    /// Reads the command line of the job of this name. `start` puts the job together.
    ///
    /// # Errors
    ///
    /// Returns an error if the line cannot be understood, or if the job cannot be one of several with it.
    pub fn read<S, F, E>(
        name: &'static str,
        line: Vec<OsString>,
        start: impl FnOnce(S) -> F + Send + 'static,
    ) -> Result<Self, clap::Error>
    where
        S: Settings,
        F: Future<Output = Result<Manager, E>> + Send,
        E: Error + Send + Sync + 'static,
    {
        let settings = S::of_job(name, line)?;
        Ok(Self { settings: settings.to_string(), manager: Box::pin(async { Ok(start(settings).await?) }) })
    }
}

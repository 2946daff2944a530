//! The description of a job by the operator's crate.

use std::{error::Error, ffi::OsString};

use futures::future::BoxFuture;
use konverge_runtime::Manager;

use crate::Settings;

/// An operator that can be one of several in a process.
pub struct Job {
    /// The first word of its command line.
    pub name: &'static str,
    /// A summary in one line, and the program whose flags it has.
    pub about: &'static str,
    pub(crate) ready: Box<dyn Fn(Vec<OsString>) -> Result<Ready, clap::Error> + Send + Sync>,
}

/// A job whose settings are known.
pub struct Ready {
    /// The settings, for the log; no secret is among them.
    pub settings: String,
    /// Puts it together, ready to run. Nothing is sent before it runs.
    pub manager: BoxFuture<'static, Result<Manager, Box<dyn Error + Send + Sync>>>,
}

impl Job {
    /// Returns the job of this name. `assemble` puts it together, ready to run.
    pub fn new<S, F, E>(
        name: &'static str,
        about: &'static str,
        assemble: impl Fn(S) -> F + Copy + Send + Sync + 'static,
    ) -> Self
    where
        S: Settings,
        F: Future<Output = Result<Manager, E>> + Send + 'static,
        E: Error + Send + Sync + 'static,
    {
        let ready = move |line| {
            let settings = S::of_job(name, line)?;
            let shown = settings.to_string();
            Ok(Ready { settings: shown, manager: Box::pin(async move { Ok(assemble(settings).await?) }) })
        };
        Self { name, about, ready: Box::new(ready) }
    }

    /// Reads a command line, which begins with the name. Errors and requests such as `--help` are answered as by the job's own program.
    ///
    /// # Errors
    ///
    /// Returns an error if the line cannot be understood, or if the job cannot be one of several with it.
    pub fn ready(&self, line: Vec<OsString>) -> Result<Ready, clap::Error> {
        (self.ready)(line)
    }
}

//! What an operator's crate says about itself.

use std::{error::Error, ffi::OsString};

use futures::future::BoxFuture;
use konverge_runtime::Manager;

/// An operator that can be one of several in a process.
pub trait Job: Send + Sync {
    /// The first word of its command line.
    fn name(&self) -> &'static str;

    /// What it does, in a line, and of which program it has the flags.
    fn about(&self) -> &'static str;

    /// Reads a command line, which begins with the name. What is wrong, or asked for, such as help, is said as by the program of its own.
    fn ready(&self, line: Vec<OsString>) -> Result<Ready, clap::Error>;
}

/// A job whose settings are known.
pub struct Ready {
    /// The settings, for the log; no secret is among them.
    pub settings: String,
    /// Puts it together, ready to run. Nothing is sent before it runs.
    pub manager: BoxFuture<'static, Result<Manager, Box<dyn Error + Send + Sync>>>,
}

//! Manage as one of several jobs in a process.

use std::ffi::OsString;

use konverge_jobs::{Job, Ready};

use crate::{config::Config, program};

/// openZro as custom resources say.
pub struct Manage;

impl Job for Manage {
    fn name(&self) -> &'static str {
        "manage"
    }

    fn about(&self) -> &'static str {
        "openZro as custom resources say, as openzro-operator does it"
    }

    fn ready(&self, line: Vec<OsString>) -> Result<Ready, clap::Error> {
        Ready::read(self.name(), line, async |config: Config| program::job(&config).await)
    }
}

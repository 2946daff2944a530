//! Pull as one of several jobs in a process.

use std::ffi::OsString;

use konverge_jobs::{Job, Ready};

use crate::run;

/// zopp environments into annotated Secrets.
pub struct Pull;

impl Job for Pull {
    fn name(&self) -> &'static str {
        "pull"
    }

    fn about(&self) -> &'static str {
        "zopp environments into annotated Secrets, as zopp-operator does it"
    }

    fn ready(&self, line: Vec<OsString>) -> Result<Ready, clap::Error> {
        Ready::read(self.name(), line, run::job)
    }
}

//! Roll as one of several jobs in a process.

use std::ffi::OsString;

use konverge_jobs::{Job, Ready};

use crate::run;

/// Restarts the users of a changed Secret once.
pub struct Roll;

impl Job for Roll {
    fn name(&self) -> &'static str {
        "roll"
    }

    fn about(&self) -> &'static str {
        "what uses a changed Secret or ConfigMap restarts once, as vault-rollout-operator does it"
    }

    fn ready(&self, line: Vec<OsString>) -> Result<Ready, clap::Error> {
        Ready::read(self.name(), line, run::assemble)
    }
}

//! Push as one of several jobs in a process.

use std::ffi::OsString;

use konverge_jobs::{Job, Ready};

use crate::run;

/// Secrets into Vault and `OpenBao`.
pub struct Push;

impl Job for Push {
    fn name(&self) -> &'static str {
        "push"
    }

    fn about(&self) -> &'static str {
        "Secrets into Vault and OpenBao, as vault-sync-operator does it"
    }

    fn ready(&self, line: Vec<OsString>) -> Result<Ready, clap::Error> {
        Ready::read(self.name(), line, run::job)
    }
}

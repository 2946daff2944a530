//! Push as one of several jobs in a process.

use std::ffi::OsString;

use konverge_jobs::{Job, Ready};

use crate::{config, run};

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
        let config = config::of_job(line)?;
        let settings = config.to_string();
        Ok(Ready { settings, manager: Box::pin(async { Ok(run::job(config).await?) }) })
    }
}

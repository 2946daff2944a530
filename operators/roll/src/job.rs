//! Roll as one of several jobs in a process.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};
use konverge_jobs::{Job, Ready, Shared};

use crate::{config::Config, run};

const SHARED: Shared = Shared { addresses: &["bind_address", "metrics_bind_address"], of_process: &["log_format"] };

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
        let config = Config::from_arg_matches(&SHARED.matches(self.name(), Config::command(), line)?)?;
        let settings = format!("{config:?}");
        Ok(Ready { settings, manager: Box::pin(async { Ok(run::assemble(config).await?) }) })
    }
}

//! Pull as one of several jobs in a process.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};
use konverge_jobs::{Job, Ready, Shared};

use crate::{config::Config, run};

const SHARED: Shared = Shared { addresses: &["health_addr", "metrics_bind_address"], of_process: &["log_format"] };

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
        let config = Config::from_arg_matches(&SHARED.matches(self.name(), Config::command(), line)?)?;
        let settings = config.to_string();
        Ok(Ready { settings, manager: Box::pin(async { Ok(run::job(config).await?) }) })
    }
}

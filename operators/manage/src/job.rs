//! Manage as one of several jobs in a process.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, error::ErrorKind};
use konverge_jobs::{Job, Ready, Shared, go_flags};

use crate::{
    config::{Config, Task},
    program,
};

const SHARED: Shared =
    Shared { addresses: &["health_probe_bind_address", "metrics_bind_address"], of_process: &["zap_encoder"] };

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
        let line = go_flags::normalised(&Config::command(), line);
        let config = Config::from_arg_matches(&SHARED.matches(self.name(), Config::command(), line)?)?;
        if config.task == Task::Drain {
            let cause = "drain is no job but ends; run openzro-operator drain";
            return Err(Config::command().error(ErrorKind::ArgumentConflict, cause));
        }
        let settings = config.to_string();
        Ok(Ready { settings, manager: Box::pin(async move { Ok(program::job(&config).await?) }) })
    }
}

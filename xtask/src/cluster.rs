//! The cluster that the user named, and what a run of the tests leaves there.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;

use crate::{
    environment::{self, KUBECONFIG_VARIABLE, RUN_VARIABLE},
    paths,
    step::{program, run},
};

/// A cluster that the user named, and a run of ours in it. The tests' objects carry the run's name, so they can be removed however the tests ended.
pub(crate) struct Named {
    kubeconfig: PathBuf,
    run: String,
}

impl Named {
    /// The cluster of the flag, else that of the variable; nothing if none is named.
    pub(crate) fn find(flag: Option<&Path>) -> Option<Self> {
        let path = flag.map(Path::to_owned).or_else(|| environment::variable(KUBECONFIG_VARIABLE))?;
        // Commands run in the workspace's root, so a relative path is made whole before.
        let kubeconfig = std::path::absolute(&path).unwrap_or(path);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(Self { kubeconfig, run: format!("xtask-{:x}", since.as_micros()) })
    }

    /// Tells a command which cluster to use and to which run what it makes belongs.
    pub(crate) fn tell(&self, command: &mut Command) {
        command.env(KUBECONFIG_VARIABLE, &self.kubeconfig).env(RUN_VARIABLE, &self.run);
    }

    /// Prints how to clean up by hand if the program is killed.
    pub(crate) fn announce(&self) {
        eprintln!(
            "\nThe cluster of {} is used; what is made in it is taken away at the end. Should this be killed before:\n  {} \
             take-away --kubeconfig {} {}",
            self.kubeconfig.display(),
            tool().display(),
            self.kubeconfig.display(),
            self.run
        );
    }

    /// Takes away what the run made.
    pub(crate) fn take_away(&self) -> Result<()> {
        let mut command = program(&tool());
        command.args(["take-away", "--kubeconfig"]).arg(&self.kubeconfig).arg(&self.run);
        run("taking away what the tests made", command, "Is the cluster still there?")
    }
}

fn tool() -> PathBuf {
    paths::built("debug", "konverge-control-plane")
}

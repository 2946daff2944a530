//! The tests of what users install, on the earlier minor versions of Kubernetes. Not a part of CI, because each version takes long to build.

use std::process::Command;

use anyhow::Result;

use crate::{
    assets::{ASSETS_VARIABLE, KUBERNETES_VARIABLE, SUPPORTED_BEFORE},
    environment::KUBECONFIG_VARIABLE,
    paths, recipes,
    step::{cargo, program, run, step},
    testing::{PROGRAMS_AT_ONCE, Tests},
};

/// Installs the chart, follows the tutorials, and upgrades and removes what they installed.
const CHOSEN: [&str; 4] = ["--package", "konverge-cli", "--test", "shipped"];

pub(crate) fn test(filter: Option<&str>) -> Result<()> {
    recipes::setup()?;
    run("build", cargo(["build", "--workspace", "--bins"]), "What failed, and why, is above.")?;
    let tests = Tests { chosen: &CHOSEN, with_docs: false, filter, at_once: PROGRAMS_AT_ONCE };
    for minor in SUPPORTED_BEFORE {
        let mut control_plane = program(&paths::built("debug", "konverge-control-plane"));
        choose(&mut control_plane, minor);
        control_plane.arg("setup");
        run(&format!("control plane of Kubernetes {minor}"), control_plane, "What failed, and why, is above.")?;
        step(
            &format!("tests on Kubernetes {minor}"),
            "The logs of the servers are where the failed test says.",
            || tests.run(|command| choose(command, minor)),
        )?;
    }
    Ok(())
}

/// Has a command use this version, and neither programs nor a cluster that the developer names for other tests.
fn choose(command: &mut Command, minor: &str) {
    command.env(KUBERNETES_VARIABLE, minor).env_remove(ASSETS_VARIABLE).env_remove(KUBECONFIG_VARIABLE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_setting_of_the_developer_replaces_the_version() {
        let mut command = Command::new("tests");
        command.env(ASSETS_VARIABLE, "/opt/kubebuilder").env(KUBECONFIG_VARIABLE, "/home/me/kubeconfig");
        choose(&mut command, "1.34");
        let mut chosen: Vec<_> = command.get_envs().filter_map(|(name, value)| Some((name, value?))).collect();
        assert_eq!(chosen.len(), 1, "{chosen:?}");
        let (name, value) = chosen.remove(0);
        assert!(name == KUBERNETES_VARIABLE && value == "1.34", "{name:?} {value:?}");
    }
}

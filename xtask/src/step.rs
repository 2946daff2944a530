//! Running another program as one step of a recipe: said before, timed after, named when it fails.

use std::{env, ffi::OsString, path::Path, process::Command, time::Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::paths;

/// A cargo command in the workspace's root, by the cargo that runs us.
///
/// It does not get the variables by which that cargo described this program. Build scripts look at some of them, such as ring's, so cargo would
/// compile their crates and all that depend on them whenever a build of ours follows one that a person started.
pub(crate) fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = program(Path::new(&env::var_os("CARGO").unwrap_or_else(|| "cargo".into())));
    let names = env::vars_os().map(|(name, _)| name);
    let describes_us = |name: &OsString| {
        name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    };
    for name in names.filter(describes_us) {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

/// Another program in the workspace's root.
pub(crate) fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.current_dir(paths::workspace());
    command
}

/// Runs a command as one step, to its end. `next` is what to do when it fails.
pub(crate) fn run(what: &str, mut command: Command, next: &str) -> Result<()> {
    step(what, next, || {
        let status = command.status().with_context(|| {
            format!("cannot start {}; is it installed?", Path::new(command.get_program()).display())
        })?;
        if !status.success() {
            bail!("{status}");
        }
        Ok(())
    })
}

/// One step: said before, timed after. `next` is what to do when it fails.
pub(crate) fn step(what: &str, next: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("\n== {what}");
    let began = Instant::now();
    work().map_err(|error| anyhow!("{what} failed ({error:#}). {next}"))?;
    eprintln!("== {what}: {:.0} s", began.elapsed().as_secs_f32());
    Ok(())
}

/// Today's date, as records of real servers state it.
pub(crate) fn today() -> Result<String> {
    let output = Command::new("date").arg("+%Y-%m-%d").output().context("cannot start date")?;
    if !output.status.success() {
        bail!("date failed: {}", output.status);
    }
    Ok(String::from_utf8(output.stdout).context("the date is no text")?.trim().to_owned())
}

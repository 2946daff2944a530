//! Protection of environments against commands that use their values by mistake.
//!
//! `zopp.toml` names them (`[environments] protected = ["production"]`), or a variable on this device, which applies to every file. `zopp run`
//! and `zopp secret export` use such an environment only if the command line names it, or if this device allows it in this directory (`zopp
//! environment allow`). The protection prevents mistakes. It replaces no permission on the server.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::PathBuf,
};

use konverge_zopp_client::{EnvironmentName, private_file};

use crate::{
    context::Context,
    failure::Failure,
    project_file::{self, Found, ProjectFileError},
};

/// The variable with the environments that are protected on this device, separated by commas.
pub const VARIABLE: &str = "ZOPP_PROTECTED_ENVIRONMENTS";

/// The environments that are allowed, by directory. The file is beside the principals of this device.
type Allowed = BTreeMap<PathBuf, BTreeSet<String>>;

/// Refuses a protected environment that is not allowed in this directory.
///
/// # Errors
/// If it is refused, or if a file that decides it cannot be read.
pub fn check(name: &EnvironmentName) -> Result<(), Failure> {
    let directory = project_file::working_directory()?;
    let found = match project_file::find(&directory) {
        // A user who can write the file could also remove the protection.
        Err(ProjectFileError::Unsafe { .. }) => None,
        found => found?,
    };
    let by_file = found.iter().flat_map(|found| found.settings.environments.protected.iter().map(String::as_str));
    let on_device = std::env::var(VARIABLE).unwrap_or_default();
    let mut marks = by_file.chain(on_device.split(','));
    if !marks.any(|mark| covers(mark.trim(), name)) {
        return Ok(());
    }
    let directory = scope(found.as_ref(), directory);
    if read()?.get(&directory).is_some_and(|allowed| allowed.contains(&name.to_string())) {
        return Ok(());
    }
    let EnvironmentName { workspace, project, environment } = name;
    Err(Failure::usage(format!("environment {name} is protected, and the command line does not name it")).next(format!(
        "Name it: -e {environment}. Or allow it in {} once: zopp environment allow {environment} -w {workspace} -p {project}",
        directory.display()
    )))
}

/// Allows an environment in this directory, or takes that back. Returns the directory: that of the project file, or else the working directory.
///
/// # Errors
/// If the file of this device cannot be read or written.
pub fn allow(name: &EnvironmentName, is_allowed: bool) -> Result<PathBuf, Failure> {
    let _lock = Context::lock()?;
    let directory = scope(project_file::of_process()?.as_ref(), project_file::working_directory()?);
    let mut allowed = read()?;
    let here = allowed.entry(directory.clone()).or_default();
    if is_allowed {
        here.insert(name.to_string());
    } else {
        here.remove(&name.to_string());
    }
    allowed.retain(|_, names| !names.is_empty());
    let path = path()?;
    let text = serde_json::to_vec_pretty(&allowed)
        .map_err(|source| Failure::new("the allowed environments cannot be written as JSON").because(source))?;
    private_file::replace(&path, &text)
        .map_err(|source| Failure::new(format!("cannot write {}", path.display())).because(source))?;
    Ok(directory)
}

/// Returns the directory in which an environment is allowed.
fn scope(found: Option<&Found>, working_directory: PathBuf) -> PathBuf {
    found.and_then(|found| found.path.parent()).map_or(working_directory, PathBuf::from)
}

/// Returns `true` if a mark is the environment's name, or its workspace, project and name.
fn covers(mark: &str, name: &EnvironmentName) -> bool {
    mark == name.environment || mark == name.to_string()
}

fn path() -> Result<PathBuf, Failure> {
    Ok(Context::config_path()?.with_file_name("allowed.json"))
}

fn read() -> Result<Allowed, Failure> {
    let path = path()?;
    let failure = || Failure::new(format!("cannot read {}", path.display()));
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|source| failure().because(source)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Allowed::new()),
        Err(error) => Err(failure().because(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_name_or_a_whole_path() {
        let name = EnvironmentName {
            workspace: "acme".to_owned(),
            project: "backend".to_owned(),
            environment: "production".to_owned(),
        };
        for (mark, expected) in [
            ("production", true),
            ("acme/backend/production", true),
            ("acme/other/production", false),
            ("prod", false),
            ("", false),
        ] {
            assert_eq!(covers(mark, &name), expected, "{mark:?}");
        }
    }
}

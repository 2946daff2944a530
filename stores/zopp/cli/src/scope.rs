//! Which workspace, project and environment a command is about: flag, else variable, else project file.

use std::cell::OnceCell;

use clap::Args;
use konverge_zopp_client::{Client, EnvironmentName};

use crate::{
    escape::visible,
    failure::{Failure, Need},
    project_file::{self, Defaults, Found},
    protected,
};

/// `-w`.
#[derive(Debug, Args)]
pub struct WorkspaceArguments {
    /// Workspace [env: `ZOPP_WORKSPACE`]
    #[arg(short, long, help = "Workspace [env: ZOPP_WORKSPACE]")]
    pub workspace: Option<String>,
}

/// `-w -p`.
#[derive(Debug, Args)]
pub struct ProjectArguments {
    /// Workspace [env: `ZOPP_WORKSPACE`]
    #[arg(short, long, help = "Workspace [env: ZOPP_WORKSPACE]")]
    pub workspace: Option<String>,
    /// Project [env: `ZOPP_PROJECT`]
    #[arg(short, long, help = "Project [env: ZOPP_PROJECT]")]
    pub project: Option<String>,
}

/// `-w -p -e`.
#[derive(Debug, Args)]
pub struct EnvironmentArguments {
    /// Workspace [env: `ZOPP_WORKSPACE`]
    #[arg(short, long, help = "Workspace [env: ZOPP_WORKSPACE]")]
    pub workspace: Option<String>,
    /// Project [env: `ZOPP_PROJECT`]
    #[arg(short, long, help = "Project [env: ZOPP_PROJECT]")]
    pub project: Option<String>,
    /// Environment [env: `ZOPP_ENVIRONMENT`]
    #[arg(short, long, help = "Environment [env: ZOPP_ENVIRONMENT]")]
    pub environment: Option<String>,
}

/// A workspace, a project in it, or an environment in that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A workspace.
    Workspace {
        /// Its name.
        workspace: String,
    },
    /// A project.
    Project {
        /// The workspace's name.
        workspace: String,
        /// Its name.
        project: String,
    },
    /// An environment.
    Environment(EnvironmentName),
}

impl WorkspaceArguments {
    /// The workspace's name.
    pub fn resolve(self) -> Result<String, Failure> {
        let mut sources = Sources::of_process();
        let workspace = sources.workspace(self.workspace)?;
        sources.report(&[&workspace])?;
        Ok(workspace)
    }

    /// The workspace's name, if one is given somewhere. A project file that cannot be understood is an error.
    pub fn known(self) -> Result<Option<String>, Failure> {
        let mut sources = Sources::of_process();
        let workspace = sources.find(self.workspace, "ZOPP_WORKSPACE", |file| file.workspace.as_ref())?;
        sources.report(workspace.iter().map(String::as_str).collect::<Vec<_>>().as_slice())?;
        Ok(workspace)
    }
}

impl ProjectArguments {
    /// The names of workspace and project.
    pub fn resolve(self) -> Result<(String, String), Failure> {
        let mut sources = Sources::of_process();
        let (workspace, project) = (sources.workspace(self.workspace)?, sources.project(self.project)?);
        sources.report(&[&workspace, &project])?;
        Ok((workspace, project))
    }
}

impl EnvironmentArguments {
    /// The three names.
    pub fn resolve(self) -> Result<EnvironmentName, Failure> {
        let mut sources = Sources::of_process();
        let name = EnvironmentName {
            workspace: sources.workspace(self.workspace)?,
            project: sources.project(self.project)?,
            environment: sources.environment(self.environment)?,
        };
        sources.report(&[&name.workspace, &name.project, &name.environment])?;
        Ok(name)
    }

    /// Returns the three names for a command that outputs all values. A protected environment must be named on the command line, or allowed
    /// in this directory.
    pub fn resolve_for_values(self) -> Result<EnvironmentName, Failure> {
        let is_named = self.environment.is_some();
        let name = self.resolve()?;
        if !is_named {
            protected::check(&name)?;
        }
        Ok(name)
    }
}

impl EnvironmentArguments {
    /// The three names as far as they are given somewhere. A project file that cannot be understood is an error.
    pub fn known(self) -> Result<[Option<String>; 3], Failure> {
        let mut sources = Sources::of_process();
        let names = [
            sources.find(self.workspace, "ZOPP_WORKSPACE", |file| file.workspace.as_ref())?,
            sources.find(self.project, "ZOPP_PROJECT", |file| file.project.as_ref())?,
            sources.find(self.environment, "ZOPP_ENVIRONMENT", |file| file.environment.as_ref())?,
        ];
        sources.report(&names.iter().flatten().map(String::as_str).collect::<Vec<_>>())?;
        Ok(names)
    }
}

impl Place {
    /// The permission that the command needs there, for the message of a refusal.
    pub fn need(&self, role: &'static str, client: &Client) -> Option<Need> {
        let (workspace, project, environment) = match self {
            Self::Workspace { workspace } => (workspace, None, None),
            Self::Project { workspace, project } => (workspace, Some(project), None),
            Self::Environment(name) => (&name.workspace, Some(&name.project), Some(&name.environment)),
        };
        Some(Need {
            role,
            workspace: workspace.clone(),
            project: project.cloned(),
            environment: environment.cloned(),
            principal_id: client.identity().principal_id().to_owned(),
            is_human: client.identity().user_id().is_some(),
        })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Workspace { workspace } => write!(f, "workspace {workspace}"),
            Self::Project { workspace, project } => write!(f, "project {workspace}/{project}"),
            Self::Environment(name) => write!(f, "environment {name}"),
        }
    }
}

/// Where a name comes from when there is no flag. The project file is read only when it is needed.
struct Sources<V, F> {
    variable: V,
    find_file: F,
    /// The file that was found; `None` if there is none.
    file: OnceCell<Option<Found>>,
    is_file_used: bool,
}

impl Sources<fn(&'static str) -> Option<String>, fn() -> Result<Option<Found>, Failure>> {
    fn of_process() -> Self {
        Self {
            variable: |name| std::env::var(name).ok(),
            find_file: project_file::of_process,
            file: OnceCell::new(),
            is_file_used: false,
        }
    }

    /// Prints a note that names the project file, if it is not in the working directory.
    fn report(&self, names: &[&str]) -> Result<(), Failure> {
        let Some(found) = self.file.get().and_then(Option::as_ref).filter(|_| self.is_file_used) else {
            return Ok(());
        };
        if found.path.parent() != Some(project_file::working_directory()?.as_path()) {
            let what = ["workspace", "project", "environment"][names.len().clamp(1, 3) - 1];
            eprintln!("Note: {what} {}, by {}", visible(&names.join("/")), visible(&found.path.display().to_string()));
        }
        Ok(())
    }
}

impl<V: Fn(&'static str) -> Option<String>, F: Fn() -> Result<Option<Found>, Failure>> Sources<V, F> {
    fn workspace(&mut self, flag: Option<String>) -> Result<String, Failure> {
        self.resolve(flag, "workspace", "-w", "ZOPP_WORKSPACE", |file| file.workspace.as_ref())
    }

    fn project(&mut self, flag: Option<String>) -> Result<String, Failure> {
        self.resolve(flag, "project", "-p", "ZOPP_PROJECT", |file| file.project.as_ref())
    }

    fn environment(&mut self, flag: Option<String>) -> Result<String, Failure> {
        self.resolve(flag, "environment", "-e", "ZOPP_ENVIRONMENT", |file| file.environment.as_ref())
    }

    fn resolve(
        &mut self,
        flag: Option<String>,
        what: &str,
        short: &str,
        variable: &'static str,
        field: impl Fn(&Defaults) -> Option<&String>,
    ) -> Result<String, Failure> {
        self.find(flag, variable, field)?.ok_or_else(|| {
            Failure::usage(format!("no {what} is given"))
                .next(format!("Use {short}/--{what}, or set {variable}, or write it into zopp.toml under [defaults]."))
        })
    }

    fn find(
        &mut self,
        flag: Option<String>,
        variable: &'static str,
        field: impl Fn(&Defaults) -> Option<&String>,
    ) -> Result<Option<String>, Failure> {
        // An empty variable is one that a script left unset.
        if let Some(name) = flag.or_else(|| (self.variable)(variable).filter(|name| !name.is_empty())) {
            return Ok(Some(name));
        }
        if self.file.get().is_none() {
            let _ = self.file.set((self.find_file)()?);
        }
        let found = self.file.get().and_then(Option::as_ref);
        let name = found.and_then(|found| field(&found.settings.defaults)).cloned();
        self.is_file_used |= name.is_some();
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::project_file::ProjectFile;

    fn file() -> Found {
        let defaults = Defaults { workspace: Some("from file".to_owned()), ..Defaults::default() };
        let settings = ProjectFile { defaults, ..ProjectFile::default() };
        Found { path: "zopp.toml".into(), settings }
    }

    #[test]
    fn flag_then_variable_then_file() {
        let resolve = |flag: Option<&str>, variable: Option<&str>| {
            let variable = variable.map(str::to_owned);
            let mut sources = Sources {
                variable: |_| variable.clone(),
                find_file: || Ok(Some(file())),
                file: OnceCell::new(),
                is_file_used: false,
            };
            sources.workspace(flag.map(str::to_owned)).unwrap()
        };
        assert_eq!(resolve(Some("flag"), Some("variable")), "flag");
        assert_eq!(resolve(None, Some("variable")), "variable");
        assert_eq!(resolve(None, Some("")), "from file");
        assert_eq!(resolve(None, None), "from file");
    }

    #[test]
    fn the_file_is_read_once_and_only_when_needed() {
        let reads = Cell::new(0);
        let find_file = || {
            reads.set(reads.get() + 1);
            Ok(Some(file()))
        };
        let mut sources = Sources { variable: |_| None, find_file, file: OnceCell::new(), is_file_used: false };
        sources.workspace(Some("flag".to_owned())).unwrap();
        assert_eq!(reads.get(), 0);
        sources.workspace(None).unwrap();
        let text = sources.project(None).unwrap_err().text();
        assert_eq!(reads.get(), 1);
        assert_eq!(
            text,
            "no project is given\n  Use -p/--project, or set ZOPP_PROJECT, or write it into zopp.toml under [defaults]."
        );
    }
}

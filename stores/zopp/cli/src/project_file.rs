//! `zopp.toml` (or `.yaml`, `.yml`, `.json`): the workspace, project and environment that a directory tree works with, and the keys that
//! `zopp run` passes there.
//!
//! ```toml
//! [defaults]
//! workspace = "acme"
//! project = "backend"
//! environment = "development"
//!
//! [run]
//! keys = ["DATABASE_URL", "APP_*"]
//!
//! [environments]
//! protected = ["production"]
//! ```
//! The nearest file counts, from the working directory up to the directory with `.git`, or else to the root of the file system. A file that cannot
//! be parsed is an error, because another directory's environment would be used without it. So is a file that another user owns or may write
//! ([`safe_file`]).

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{
    failure::Failure,
    safe_file::{self, User},
};

/// In the order in which they are tried in each directory.
const NAMES: [&str; 4] = ["zopp.toml", "zopp.yaml", "zopp.yml", "zopp.json"];

/// The settings of the file; each is optional.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
pub struct Defaults {
    /// Workspace name.
    pub workspace: Option<String>,
    /// Project name.
    pub project: Option<String>,
    /// Environment name.
    pub environment: Option<String>,
}

/// The content of the file. Unknown keys of later versions are ignored.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
pub struct ProjectFile {
    /// The names that commands use without a flag or a variable.
    #[serde(default)]
    pub defaults: Defaults,
    /// The settings of `zopp run`.
    #[serde(default)]
    pub run: RunSettings,
    /// The settings of environments.
    #[serde(default)]
    pub environments: EnvironmentSettings,
}

/// The settings of environments.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
pub struct EnvironmentSettings {
    /// The names of environments that `run` and `export` use only if the command line names them, or if they are allowed in this directory.
    #[serde(default)]
    pub protected: Vec<String>,
}

/// The project file that counts for a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The path of the file.
    pub path: PathBuf,
    /// The content of the file.
    pub settings: ProjectFile,
}

/// The settings of `zopp run`.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
pub struct RunSettings {
    /// The keys that become variables of the command. `None` declares nothing.
    pub keys: Option<Vec<KeyPattern>>,
}

/// The name of a key, or a prefix and a `*`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct KeyPattern(String);

impl KeyPattern {
    /// Returns `true` if the pattern covers the key.
    pub fn matches(&self, key: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => key.starts_with(beginning),
            None => key == self.0,
        }
    }
}

impl TryFrom<String> for KeyPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let name = text.strip_suffix('*').unwrap_or(&text);
        if text.is_empty() || name.contains('*') {
            return Err(format!("invalid key pattern {text:?}: a \"*\" stands at the end only (example: \"APP_*\")"));
        }
        Ok(Self(text))
    }
}

/// Returns the working directory.
///
/// # Errors
/// If there is none.
pub fn working_directory() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|source| Failure::new("the working directory cannot be found").because(source))
}

/// Reads the project file that counts for the working directory.
///
/// # Errors
/// If there is no working directory, or if the file cannot be read, understood or trusted.
pub fn of_process() -> Result<Option<Found>, Failure> {
    Ok(find(&working_directory()?)?)
}

/// The nearest project file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProjectFileError {
    /// It cannot be read.
    #[error("project file {} cannot be read", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It cannot be understood.
    #[error("project file {} is malformed: {reason}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The parser's message.
        reason: String,
    },
    /// Another user may have written the file.
    #[error("project file {} is not used: {} {reason}", file.display(), doubtful.display())]
    Unsafe {
        /// The file.
        file: PathBuf,
        /// The file or its folder.
        doubtful: PathBuf,
        /// The access that another user has.
        reason: String,
    },
}

impl ProjectFileError {
    /// Returns the next step for the user.
    pub fn next_step(&self) -> Option<String> {
        let Self::Unsafe { file, doubtful, .. } = self else { return None };
        let folder = file.parent().unwrap_or(file).display();
        Some(format!(
            "If you trust all users who can write there: export {}={folder}. Otherwise remove their write permission (chmod go-w {}), or delete the file.",
            safe_file::VARIABLE,
            doubtful.display()
        ))
    }
}

/// Reads the nearest project file at or above `directory`, up to the root of the repository.
pub fn find(directory: &Path) -> Result<Option<Found>, ProjectFileError> {
    for directory in directory.ancestors() {
        for name in NAMES {
            let path = directory.join(name);
            match read(&path) {
                Ok(text) => return Ok(Some(Found { settings: parse(&path, &text)?, path })),
                Err(ProjectFileError::Unreadable { source, .. })
                    if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => {}
                Err(error) => return Err(error),
            }
        }
        // A file in the worktree of a repository, else a directory.
        if directory.join(".git").exists() {
            break;
        }
    }
    Ok(None)
}

/// Reads a file that only the user can have written.
fn read(path: &Path) -> Result<String, ProjectFileError> {
    let unreadable = |source| ProjectFileError::Unreadable { file: path.to_owned(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(unreadable)?;
    let link = path.parent().unwrap_or(path);
    // A symbolic link leads to another folder, in which the file could be replaced.
    let real = path.canonicalize().map_err(unreadable)?;
    let real = real.parent().unwrap_or(&real);
    let mut checked = vec![(path, file.metadata()), (link, fs::metadata(link))];
    if real != link {
        checked.push((real, fs::metadata(real)));
    }
    let user = User::of_process();
    for (place, metadata) in checked {
        if let Some(reason) = user.doubts(&metadata.map_err(unreadable)?).filter(|_| !safe_file::is_allowed(link)) {
            return Err(ProjectFileError::Unsafe { file: path.to_owned(), doubtful: place.to_owned(), reason });
        }
    }
    Ok(text)
}

/// Reads the text of a project file, in the format that the extension of `file` names.
///
/// # Errors
/// If the text is malformed; the error names the file.
pub fn parse(file: &Path, text: &str) -> Result<ProjectFile, ProjectFileError> {
    let parsed: Result<ProjectFile, String> = match file.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => toml::from_str(text).map_err(|error| error.to_string()),
        Some("json") => serde_json::from_str(text).map_err(|error| error.to_string()),
        _ => serde_saphyr::from_str(text).map_err(|error| error.to_string()),
    };
    parsed.map_err(|reason| ProjectFileError::Malformed { file: file.to_owned(), reason: reason.trim_end().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults(workspace: &str, project: Option<&str>) -> Defaults {
        Defaults { workspace: Some(workspace.to_owned()), project: project.map(str::to_owned), environment: None }
    }

    #[test]
    fn each_format_is_read() {
        let check = |name: &str, text: &str| {
            assert_eq!(parse(Path::new(name), text).unwrap().defaults, defaults("acme", Some("backend")), "{name}");
        };
        check("zopp.toml", "later = 1\n[defaults]\nworkspace = \"acme\"\nproject = \"backend\"\n");
        check("zopp.yaml", "later: 1\ndefaults:\n  workspace: acme\n  project: backend\n");
        check("zopp.yml", "defaults: {workspace: acme, project: backend}");
        check("zopp.json", r#"{"defaults":{"workspace":"acme","project":"backend","environment":null}}"#);
        assert_eq!(parse(Path::new("zopp.toml"), "").unwrap(), ProjectFile::default());
    }

    #[test]
    fn keys_of_run_are_names_and_beginnings() {
        let keys = |text: &str| parse(Path::new("zopp.toml"), text).map(|file| file.run.keys);
        let patterns = keys("[run]\nkeys = [\"DATABASE_URL\", \"APP_*\"]").unwrap().unwrap();
        let matching = |key: &str| patterns.iter().any(|pattern| pattern.matches(key));
        assert!(["DATABASE_URL", "APP_", "APP_NAME"].into_iter().all(matching));
        assert!(!["DATABASE_URL_2", "database_url", "MY_APP_NAME", "APP", ""].into_iter().any(matching));
        assert_eq!(keys("[run]\nkeys = []").unwrap(), Some(Vec::new()), "no key is declared");
        assert_eq!(keys("[run]").unwrap(), None, "nothing is declared");
        for malformed in ["\"\"", "\"*_URL\"", "\"A*B*\"", "1"] {
            assert!(keys(&format!("[run]\nkeys = [{malformed}]")).is_err(), "{malformed}");
        }
    }

    #[test]
    fn the_nearest_file_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.path().join("zopp.toml"), "[defaults]\nworkspace = \"outer\"").unwrap();
        assert_eq!(find(&inner).unwrap().unwrap().settings.defaults, defaults("outer", None));
        fs::write(root.path().join("a/zopp.json"), r#"{"defaults":{"workspace":"inner"}}"#).unwrap();
        assert_eq!(find(&inner).unwrap().unwrap().settings.defaults, defaults("inner", None), "files are not merged");
    }

    #[test]
    fn the_search_ends_at_the_root_of_the_repository() {
        let root = tempfile::tempdir().unwrap();
        let repository = root.path().join("repository");
        let inner = repository.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.path().join("zopp.toml"), "[defaults]\nworkspace = \"outer\"").unwrap();
        fs::create_dir(repository.join(".git")).unwrap();
        assert_eq!(find(&inner).unwrap(), None);
        let path = repository.join("zopp.toml");
        fs::write(&path, "[environments]\nprotected = [\"production\"]").unwrap();
        let found = find(&inner).unwrap().unwrap();
        assert_eq!((found.path, found.settings.environments.protected), (path, vec!["production".to_owned()]));
    }

    #[test]
    fn a_file_that_others_may_write_is_not_used() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let file = folder.join("zopp.toml");
        fs::write(&file, "").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for (file_mode, folder_mode, doubtful) in [
            (0o644, 0o755, None),
            (0o666, 0o755, Some(&file)),
            (0o644, 0o757, Some(&folder)),
            (0o600, 0o1777, Some(&folder)),
        ] {
            mode(&file, file_mode);
            mode(&folder, folder_mode);
            let found = find(&folder.join("missing")).map(|found| found.is_some());
            match doubtful {
                None => assert!(found.unwrap()),
                Some(place) => assert_eq!(
                    found.unwrap_err().to_string(),
                    format!(
                        "project file {} is not used: {} can be written by every user of this machine",
                        file.display(),
                        place.display()
                    )
                ),
            }
        }
        let link = root.path().join("zopp.toml");
        symlink(&file, &link).unwrap();
        let error = find(root.path()).unwrap_err().to_string();
        assert!(error.contains(&folder.display().to_string()), "the folder behind a link counts, too: {error}");
    }

    #[test]
    fn a_malformed_file_is_an_error_that_names_it() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(root.path().join("zopp.toml"), "[defaults]\nworkspace = \"outer\"").unwrap();
        for (name, text) in [
            ("zopp.toml", "[defaults\nworkspace = 1"),
            ("zopp.yaml", "defaults: ["),
            ("zopp.json", "{\"defaults\": {\"workspace\": 5}}"),
        ] {
            let file = inner.join(name);
            fs::write(&file, text).unwrap();
            let error = find(&inner).unwrap_err().to_string();
            assert!(error.starts_with(&format!("project file {} is malformed: ", file.display())), "{error}");
            fs::remove_file(file).unwrap();
        }
    }
}

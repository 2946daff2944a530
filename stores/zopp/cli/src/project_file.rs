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
//! ```
//! The nearest file counts, from the working directory up to the root. A file that cannot be parsed is an error: without it, another directory's
//! environment would be used.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::failure::Failure;

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

/// The content of the file. Keys of later programs are passed over.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
pub struct ProjectFile {
    /// The names that commands use without a flag or a variable.
    #[serde(default)]
    pub defaults: Defaults,
    /// The settings of `zopp run`.
    #[serde(default)]
    pub run: RunSettings,
}

/// The settings of `zopp run`.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
pub struct RunSettings {
    /// The keys that become variables of the command. `None` declares nothing.
    pub keys: Option<Vec<KeyPattern>>,
}

/// The name of a key, or its beginning and a `*`.
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

/// Reads the project file that counts for the working directory.
///
/// # Errors
/// If there is no working directory, or if the file cannot be read or understood.
pub fn of_process() -> Result<ProjectFile, Failure> {
    let directory = std::env::current_dir()
        .map_err(|source| Failure::new("the working directory cannot be found").because(source))?;
    Ok(find(&directory)?)
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
}

/// Reads the nearest project file at or above `directory`. Without one, everything is left out.
pub fn find(directory: &Path) -> Result<ProjectFile, ProjectFileError> {
    for directory in directory.ancestors() {
        for name in NAMES {
            let file = directory.join(name);
            match fs::read_to_string(&file) {
                Ok(text) => return parse(&file, &text),
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => {}
                Err(source) => return Err(ProjectFileError::Unreadable { file, source }),
            }
        }
    }
    Ok(ProjectFile::default())
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
        assert_eq!(find(&inner).unwrap().defaults, defaults("outer", None));
        fs::write(root.path().join("a/zopp.json"), r#"{"defaults":{"workspace":"inner"}}"#).unwrap();
        assert_eq!(find(&inner).unwrap().defaults, defaults("inner", None), "files are not merged");
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

//! `zopp.toml` (or `.yaml`, `.yml`, `.json`): the workspace, project and environment that a directory tree works with.
//!
//! ```toml
//! [defaults]
//! workspace = "acme"
//! project = "backend"
//! environment = "development"
//! ```
//! The nearest file counts, from the working directory up to the root. A file that cannot be parsed is an error: without it, another directory's
//! environment would be used.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

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

/// Keys of later programs are passed over.
#[derive(Deserialize)]
struct ProjectFile {
    #[serde(default)]
    defaults: Defaults,
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
pub fn find(directory: &Path) -> Result<Defaults, ProjectFileError> {
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
    Ok(Defaults::default())
}

/// Reads the text of a project file, in the format that the extension of `file` names.
///
/// # Errors
/// If the text is malformed; the error names the file.
pub fn parse(file: &Path, text: &str) -> Result<Defaults, ProjectFileError> {
    let parsed: Result<ProjectFile, String> = match file.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => toml::from_str(text).map_err(|error| error.to_string()),
        Some("json") => serde_json::from_str(text).map_err(|error| error.to_string()),
        _ => serde_saphyr::from_str(text).map_err(|error| error.to_string()),
    };
    parsed
        .map(|file| file.defaults)
        .map_err(|reason| ProjectFileError::Malformed { file: file.to_owned(), reason: reason.trim_end().to_owned() })
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
            assert_eq!(parse(Path::new(name), text).unwrap(), defaults("acme", Some("backend")), "{name}");
        };
        check("zopp.toml", "later = 1\n[defaults]\nworkspace = \"acme\"\nproject = \"backend\"\n");
        check("zopp.yaml", "later: 1\ndefaults:\n  workspace: acme\n  project: backend\n");
        check("zopp.yml", "defaults: {workspace: acme, project: backend}");
        check("zopp.json", r#"{"defaults":{"workspace":"acme","project":"backend","environment":null}}"#);
        assert_eq!(parse(Path::new("zopp.toml"), "").unwrap(), Defaults::default());
    }

    #[test]
    fn the_nearest_file_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.path().join("zopp.toml"), "[defaults]\nworkspace = \"outer\"").unwrap();
        assert_eq!(find(&inner).unwrap(), defaults("outer", None));
        fs::write(root.path().join("a/zopp.json"), r#"{"defaults":{"workspace":"inner"}}"#).unwrap();
        assert_eq!(find(&inner).unwrap(), defaults("inner", None), "files are not merged");
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

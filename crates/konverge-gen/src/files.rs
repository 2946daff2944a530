//! A set of generated files.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;

/// Generated files by their path in the folder they belong to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files(BTreeMap<PathBuf, File>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    text: String,
    /// Whether every cluster takes it.
    is_manifest: bool,
}

/// Generated files could not be made, written or found as they should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// An object is not YAML.
    #[error("cannot write {path} as YAML: {cause}", path = path.display())]
    Yaml {
        /// The file it was for.
        path: PathBuf,
        /// The reason.
        cause: String,
    },
    /// A file could not be read or written.
    #[error("cannot access {path}", path = path.display())]
    Access {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The files differ from the generated ones.
    #[error("not what the code says; generate again and commit:\n{}", .0.join("\n"))]
    Outdated(Vec<String>),
}

/// The command line of a program that generates files.
///
/// ```no_run
/// use clap::Parser;
/// use konverge_gen::{Files, files::{Destination, FilesError}};
///
/// fn main() -> Result<(), FilesError> {
///     let mut files = Files::default();
///     files.text("greeting.txt", "hello");
///     Destination::parse().put(&files)
/// }
/// ```
#[cfg(feature = "cli")]
#[derive(Debug, Clone, clap::Parser)]
#[non_exhaustive]
pub struct Destination {
    /// The folder of the files
    #[arg(long)]
    pub into: PathBuf,
    /// Write nothing and fail if a file would change
    #[arg(long)]
    pub check: bool,
}

#[cfg(feature = "cli")]
impl Destination {
    /// Writes the files into the folder. With `check`, compares them with the files there.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or written, or if the check finds a difference.
    pub fn put(&self, files: &Files) -> Result<(), FilesError> {
        if self.check { files.check(&self.into) } else { files.write(&self.into) }
    }
}

impl Files {
    /// Adds a file with this text.
    pub fn text(&mut self, path: impl Into<PathBuf>, text: impl Into<String>) -> &mut Self {
        self.0.insert(path.into(), File { text: text.into(), is_manifest: false });
        self
    }

    /// Adds a YAML file with these objects, one document each. Fields that are null are left out, and so are empty `status`
    /// and `creationTimestamp`, which the API server fills in.
    pub fn objects(&mut self, path: impl Into<PathBuf>, objects: &[impl Serialize]) -> Result<&mut Self, FilesError> {
        self.documents(path.into(), objects, true)
    }

    /// Like [`objects`](Self::objects), for what only some clusters know. It is no part of the [`manifest`](Self::manifest).
    pub fn objects_apart(
        &mut self,
        path: impl Into<PathBuf>,
        objects: &[impl Serialize],
    ) -> Result<&mut Self, FilesError> {
        self.documents(path.into(), objects, false)
    }

    fn documents(
        &mut self,
        path: PathBuf,
        objects: &[impl Serialize],
        is_manifest: bool,
    ) -> Result<&mut Self, FilesError> {
        let text = documents(&path, objects)?;
        self.0.insert(path, File { text, is_manifest });
        Ok(self)
    }

    /// The text of the file at this path.
    pub fn get(&self, path: impl AsRef<Path>) -> Option<&str> {
        self.0.get(path.as_ref()).map(|file| file.text.as_str())
    }

    /// The objects that every cluster takes, for standard output: as one stream of documents.
    pub fn manifest(&self) -> String {
        let manifests = self.0.values().filter(|file| file.is_manifest);
        manifests.map(|file| file.text.as_str()).collect::<Vec<_>>().join("---\n")
    }

    /// Writes the files into `folder`, which is made if need be. Other files there are left alone.
    pub fn write(&self, folder: &Path) -> Result<(), FilesError> {
        for (path, File { text, .. }) in &self.0 {
            let path = folder.join(path);
            let access = |source| FilesError::Access { path: path.clone(), source };
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(access)?;
            }
            fs::write(&path, text).map_err(access)?;
        }
        Ok(())
    }

    /// Fails with every file in `folder` that is missing or different, and where it begins to differ.
    pub fn check(&self, folder: &Path) -> Result<(), FilesError> {
        let mut outdated = Vec::new();
        for (path, File { text: wanted, .. }) in &self.0 {
            let path = folder.join(path);
            match fs::read_to_string(&path) {
                Ok(found) if found == *wanted => {}
                Ok(found) => {
                    outdated.push(format!("{}: {}", path.display(), first_difference(&found, wanted)));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    outdated.push(format!("{}: missing", path.display()));
                }
                Err(source) => return Err(FilesError::Access { path, source }),
            }
        }
        if outdated.is_empty() { Ok(()) } else { Err(FilesError::Outdated(outdated)) }
    }
}

/// The text of a YAML file with these objects.
pub(crate) fn documents(path: &Path, objects: &[impl Serialize]) -> Result<String, FilesError> {
    let mut documents = Vec::new();
    for object in objects {
        let yaml = |cause: String| FilesError::Yaml { path: path.to_owned(), cause };
        let mut value = serde_json::to_value(object).map_err(|error| yaml(error.to_string()))?;
        tidy(&mut value);
        documents.push(serde_saphyr::to_string(&value).map_err(|error| yaml(error.to_string()))?);
    }
    Ok(format!("# Generated; change the code instead.\n{}", documents.join("---\n")))
}

fn first_difference(found: &str, wanted: &str) -> String {
    let (mut found, mut wanted) = (found.lines(), wanted.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (found.next(), wanted.next()) {
            (None, None) => return "differs in its line ends".to_owned(),
            (one, other) if one == other => {}
            (one, other) => {
                let shown = |line: Option<&str>| line.map_or("its end".to_owned(), |line| format!("{line:?}"));
                return format!("line {number} is {}, should be {}", shown(one), shown(other));
            }
        }
    }
}

/// Takes away what an author did not write.
fn tidy(value: &mut Value) {
    if let Value::Object(object) = value {
        if object.get("status").and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) {
            object.remove("status");
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("creationTimestamp");
        }
    }
    without_nulls(value);
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, member| !member.is_null());
            object.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn files() -> Files {
        let mut files = Files::default();
        let objects = [json!({"kind": "A", "none": null, "status": {}}), json!({"kind": "B", "text": "yes: 1"})];
        files.objects("role.yaml", &objects).unwrap().text("reference.md", "# Words\n");
        files.objects_apart("alerts.yaml", &[json!({"kind": "Apart"})]).unwrap();
        files
    }

    #[test]
    fn objects_are_documents_of_one_stream_that_parses_again() {
        let manifest = files().manifest();
        assert!(
            !manifest.contains("Words")
                && !manifest.contains("Apart")
                && !manifest.contains("none")
                && !manifest.contains("status"),
            "{manifest}"
        );
        let documents: Vec<Value> = serde_saphyr::from_multiple(&manifest).unwrap();
        assert_eq!(documents, [json!({"kind": "A"}), json!({"kind": "B", "text": "yes: 1"})]);
    }

    #[test]
    fn what_was_written_is_in_order_until_somebody_changes_it() {
        let folder = tempfile::tempdir().unwrap();
        files().check(folder.path()).unwrap_err();
        files().write(folder.path()).unwrap();
        files().check(folder.path()).unwrap();
        fs::write(folder.path().join("reference.md"), "# Wards\n").unwrap();
        let error = files().check(folder.path()).unwrap_err().to_string();
        assert!(error.contains(r##"line 1 is "# Wards", should be "# Words""##), "{error}");
    }
}

//! A file on its way to its name: nobody finds half of it there.
//!
//! A process that is killed leaves its file behind, with ciphertexts in it. The next one that makes a file of the same name removes it. A lock,
//! which ends with its process, tells a file in the making from one that was left.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::BackupError;

/// The files that SQLite keeps beside a database.
pub(super) const SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-journal"];
/// The end of the name of each file on its way.
const ENDING: &str = ".partial";

/// A file on its way to its name. Dropping it removes it.
pub(super) struct Partial {
    path: PathBuf,
    /// Locked until the file is dropped or its process ends.
    file: File,
}

impl Partial {
    /// Makes an empty file beside `file`, in the same file system, that only this user can read.
    pub(super) fn beside(file: &Path) -> Result<Self, BackupError> {
        loop {
            let path = with_suffix(file, &format!(".{}{ENDING}", super::new_id()));
            let failed = |source| BackupError::File { path: file.to_owned(), source };
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
            let partial = Self { path, file: made };
            // A file system without locks also has none that could be taken to remove the file.
            let _ = partial.file.lock();
            // Somebody else may have removed it before it was locked.
            if partial.is_in_place() {
                return Ok(partial);
            }
        }
    }

    /// Where it is for now.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file, which must be closed by all others, its name, unless there is another of that name meanwhile.
    pub(super) fn publish(self, file: &Path) -> Result<(), BackupError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => BackupError::Exists(file.to_owned()),
            _ => BackupError::File { path: file.to_owned(), source },
        };
        self.file.sync_all().map_err(failed)?;
        fs::hard_link(&self.path, file).map_err(failed)?;
        File::open(folder_of(file)).and_then(|folder| folder.sync_all()).map_err(failed)
    }

    fn is_in_place(&self) -> bool {
        match (fs::symlink_metadata(&self.path), self.file.metadata()) {
            (Ok(there), Ok(ours)) => (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
            _ => false,
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes the files that killed processes left on the way to `file`. A file that cannot be removed is left, for it hinders nobody.
///
/// Not to be called while this process has a database beside `file` open: to close a second handle of a file ends the locks that SQLite has.
pub(super) fn remove_abandoned(file: &Path) {
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else { return };
    let Ok(entries) = fs::read_dir(folder_of(file)) else { return };
    for entry in entries.flatten() {
        let is_partial = entry.file_name().to_str().is_some_and(|found| is_on_the_way(name, found));
        // The folder may be everybody's, as that for temporary files: nothing but a plain file is opened.
        if !is_partial || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path();
        if File::open(&path).is_ok_and(|left| left.try_lock().is_ok()) {
            remove(&path);
        }
    }
}

/// Whether `found` is the name of a file on its way to `name`.
fn is_on_the_way(name: &str, found: &str) -> bool {
    let id =
        found.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')).and_then(|rest| rest.strip_suffix(ENDING));
    id.is_some_and(|id| uuid::Uuid::parse_str(id).is_ok())
}

fn remove(path: &Path) {
    for suffix in [SIDE_FILES[0], SIDE_FILES[1], SIDE_FILES[2], ""] {
        // Most of them are not there.
        let _ = fs::remove_file(with_suffix(path, suffix));
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_a_file_that_nobody_makes_any_more_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("copy.db");
        let in_the_making = Partial::beside(&file).unwrap();
        let left = format!("copy.db.{}.partial", super::super::new_id());
        let others = ["copy.db", "copy.db.partial", "copy.db.old.partial", "other.db.partial", "xcopy.db"];
        for name in others.iter().copied().chain([left.as_str(), &format!("{left}-wal")]) {
            fs::write(directory.path().join(name), "x").unwrap();
        }
        // Another name's, and a link to something of somebody else's.
        let of_another = format!("other.db.{}.partial", super::super::new_id());
        fs::write(directory.path().join(&of_another), "x").unwrap();
        let link = format!("copy.db.{}.partial", super::super::new_id());
        std::os::unix::fs::symlink(directory.path().join("xcopy.db"), directory.path().join(&link)).unwrap();

        remove_abandoned(&file);
        let mut expected: Vec<String> = others.iter().map(|&name| name.to_owned()).collect();
        expected.extend([of_another, link, in_the_making.path().file_name().unwrap().to_str().unwrap().to_owned()]);
        expected.sort();
        assert_eq!(names(directory.path()), expected);
    }

    #[test]
    fn a_file_gets_its_name_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("copy.db");
        let [first, second] = [(); 2].map(|()| Partial::beside(&file).unwrap());
        fs::write(first.path(), "first").unwrap();
        first.publish(&file).unwrap();
        assert!(matches!(second.publish(&file), Err(BackupError::Exists(_))));
        assert_eq!(
            (names(directory.path()), fs::read(&file).unwrap()),
            (vec!["copy.db".to_owned()], b"first".to_vec())
        );
    }
}

//! One program at a time changes the file.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{FileError, write::create_directory};

/// Longer than any command holds it: the calls that make an identity, each with its deadline.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);

/// The right to change the file, until it is dropped. It ends with the process in any case.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Waits until no other program changes the file. The lock is on a file beside it, `config.json.lock`, which stays: the file itself is
/// replaced by each change.
pub fn lock(file: &Path) -> Result<Lock, FileError> {
    lock_within(file, PATIENCE)
}

pub(super) fn lock_within(file: &Path, patience: Duration) -> Result<Lock, FileError> {
    let unwritable = |source| FileError::Unwritable { file: file.to_owned(), source };
    create_directory(file).map_err(unwritable)?;
    let beside = beside(file).map_err(unwritable)?;
    let handle =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(beside).map_err(unwritable)?;
    let deadline = Instant::now() + patience;
    loop {
        match handle.try_lock() {
            Ok(()) => return Ok(Lock { _file: handle }),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => return Err(FileError::Locked { file: file.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(unwritable(source)),
        }
    }
}

/// Beside the file that a symbolic link leads to, so that all names of one file have one lock.
fn beside(file: &Path) -> io::Result<PathBuf> {
    let mut path = match fs::canonicalize(file) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => file.to_owned(),
        Err(error) => return Err(error),
    }
    .into_os_string();
    path.push(".lock");
    Ok(path.into())
}

//! Files with keys or values in them: readable by their owner only, and never half written.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

const OWNER_ONLY: u32 = 0o600;

/// Replaces the file's content in one step and gives it mode 0600: a reader sees the old content or the new, never a
/// part. A symbolic link stays one, the file it leads to is replaced. The directory must exist.
pub fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let target = match fs::canonicalize(file) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => file.to_owned(),
        Err(error) => return Err(error),
    };
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // A file in the same directory, so that the rename cannot cross file systems; it is removed if anything fails.
    let mut temporary = tempfile::Builder::new()
        .prefix(".zopp-")
        .permissions(fs::Permissions::from_mode(OWNER_ONLY))
        .tempfile_in(directory)?;
    temporary.write_all(bytes)?;
    temporary.as_file().sync_all()?;
    temporary.persist(&target)?;
    Ok(())
}

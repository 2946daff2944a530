//! `zopp secret edit`: a value in the user's editor.
//!
//! The value is in a file of the user's alone, in memory where the system has such a place. Files that the editor leaves beside it are
//! overwritten and removed as well, also when the editor fails. SIGINT is the editor's; on SIGTERM and SIGHUP nothing stays behind.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use clap::Args;
use konverge_core::SecretValue;
use konverge_zopp_client::{Client, EnvironmentReader, EnvironmentWriter, writer::KeyChange};
use tempfile::TempDir;
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
};

use super::{Changed, no_such_key, odd_key};
use crate::{
    failure::{Failure, failed},
    output::{Outcome, plain},
    scope::{EnvironmentArguments, Place},
    value,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  zopp secret edit GREETING
  EDITOR='code --wait' zopp secret edit TLS_CERT

The editor is VISUAL, else EDITOR, else vi. A newline that it adds at the end is left out if the
value had none.";

/// A file system in memory, which Linux has.
const IN_MEMORY: &str = "/dev/shm";

/// `zopp secret edit`
#[derive(Debug, Args)]
pub struct EditArguments {
    /// Its key
    key: String,
    /// The environment
    #[command(flatten)]
    environment: EnvironmentArguments,
}

pub(super) async fn execute(client: &Client, arguments: EditArguments) -> Outcome {
    let EditArguments { key, environment } = arguments;
    odd_key::refuse(&key, "Write the key alone, and the value in the editor: zopp secret edit KEY")?;
    let name = environment.resolve()?;
    let what = format!("cannot edit secret '{key}' of {name}");
    let need = Place::Environment(name.clone()).need("write", client);
    let reader = EnvironmentReader::new(client.clone(), name.clone());
    let read = async || {
        let value = reader.get(&key).await.map_err(failed(what.clone(), need.clone()))?;
        let value = value.ok_or_else(|| no_such_key(&what, &key))?;
        value.map_err(|source| Failure::new(what.clone()).because(source))
    };
    let old = read().await?;
    if std::str::from_utf8(old.expose()).is_err() {
        return Err(Failure::new(format!("{what}: its value is not UTF-8 text"))
            .next("zopp secret get --raw writes it, and zopp secret set - reads it back."));
    }
    let new = edit(&old).await.map_err(|failure| Failure::new(what.clone()).because(failure.text()))?;
    if new.expose() == old.expose() {
        return Ok(plain(Changed { key: key.clone(), environment: name.into() }, format!("Secret '{key}' unchanged")));
    }
    // Editing takes its time.
    if read().await?.expose() != old.expose() {
        return Err(Failure::new(format!("{what}: it was changed by somebody else meanwhile")).next("Edit it again."));
    }
    let changes = [(key.clone(), KeyChange::Set(new))].into();
    let writer = EnvironmentWriter::new(client.clone(), name.clone());
    writer.write(&changes).await.map_err(failed(what, need))?;
    let text = format!("Secret '{key}' set");
    Ok(plain(Changed { key, environment: name.into() }, text))
}

/// Runs the editor on the value, and returns the new one.
async fn edit(old: &SecretValue) -> Result<SecretValue, Failure> {
    let file = PrivateFile::new(old.expose())
        .map_err(|source| Failure::new("no private file can be made for the editor").because(source))?;
    let editor = ["VISUAL", "EDITOR"].iter().filter_map(std::env::var_os).find(|value| !value.is_empty());
    let editor = editor.unwrap_or_else(|| "vi".into());
    run(&editor, &file.path).await?;
    let new = fs::File::open(&file.path)
        .and_then(value::read)
        .map_err(|source| Failure::new("the edited file cannot be read").because(source))?;
    Ok(without_added_newline(old.expose(), new))
}

/// The variable is a command of the shell's, as for every program that reads it.
async fn run(editor: &std::ffi::OsStr, file: &Path) -> Result<(), Failure> {
    let shown = editor.to_string_lossy().into_owned();
    let cannot = |source: io::Error| Failure::new(format!("the editor {shown} cannot be run")).because(source);
    let mut script = editor.to_owned();
    script.push(" \"$1\"");
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(cannot)?;
    let mut child = Command::new("sh");
    let mut child = child.arg("-c").arg(script).arg("zopp").arg(file).kill_on_drop(true).spawn().map_err(cannot)?;
    loop {
        let ended = tokio::select! {
            status = child.wait() => status.map_err(cannot)?,
            _ = interrupt.recv() => continue,
            _ = terminate.recv() => return Err(Failure::new("the command was told to end")),
            _ = hang_up.recv() => return Err(Failure::new("the terminal is gone")),
        };
        if ended.success() {
            return Ok(());
        }
        return Err(Failure::new(format!("the editor {shown} failed ({ended}), so nothing is changed")));
    }
}

/// Editors end the last line; a value that did not end so is not to get a newline.
fn without_added_newline(old: &[u8], new: SecretValue) -> SecretValue {
    match new.expose().strip_suffix(b"\n") {
        Some(without) if !old.ends_with(b"\n") => SecretValue::new(without.to_vec()),
        _ => new,
    }
}

/// A file in a folder, both for this user alone; wiped with all that is in the folder when this is dropped.
struct PrivateFile {
    folder: TempDir,
    path: PathBuf,
}

impl PrivateFile {
    fn new(content: &[u8]) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("zopp-").permissions(Permissions::from_mode(0o700));
        // In memory, if there is such a place.
        let folder = builder.tempdir_in(IN_MEMORY).or_else(|_| builder.tempdir())?;
        let path = folder.path().join("value");
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(content)?;
        Ok(Self { folder, path })
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        // The folder itself is removed by its own drop.
        for entry in fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            if let Err(error) = wipe(&entry.path()) {
                eprintln!("Warning: {} may still hold the value: {error}", entry.path().display());
            }
        }
    }
}

/// Overwrites a file in place.
fn wipe(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let length = file.metadata()?.len();
    io::copy(&mut io::Read::take(io::repeat(0), length), &mut file)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_newline_that_was_not_there_is_left_out() {
        for (old, new, expected) in [
            ("a", "b\n", "b"),
            ("a\n", "b\n", "b\n"),
            ("a", "b", "b"),
            ("a", "b\n\n", "b\n"),
            ("", "\n", ""),
            ("a\n", "b", "b"),
        ] {
            let got = without_added_newline(old.as_bytes(), SecretValue::from(new.to_owned()));
            assert_eq!(got.expose(), expected.as_bytes(), "{old:?} {new:?}");
        }
    }

    #[test]
    fn the_file_and_what_lies_beside_it_are_wiped() {
        let file = PrivateFile::new(b"hunter two").unwrap();
        let backup = file.folder.path().join("value~");
        fs::write(&backup, "hunter one").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(file.folder.path()), mode(&file.path)), (0o700, 0o600));
        wipe(&backup).unwrap();
        assert_eq!(fs::read(&backup).unwrap(), [0; 10]);
        let folder = file.folder.path().to_owned();
        drop(file);
        assert!(!folder.exists());
    }
}

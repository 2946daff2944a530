//! A program that a test writes and then starts.

use std::{
    io::{self, Read},
    path::Path,
    process::{Command, Stdio},
};

/// Writes a program that can be started at once, with mode 755.
///
/// Another process writes it, because the system refuses to start a file that any process has open for writing ("Text file busy"). A test that writes the
/// file itself shares the open file with each child that another thread forks meanwhile, until that child has become its program. That may be after the
/// test has closed the file.
pub fn write_program(path: &Path, mut content: impl Read) -> io::Result<()> {
    let mut writer = Command::new("sh");
    writer.args(["-c", r#"cat >"$0" && chmod 755 "$0""#]).arg(path);
    let mut writer = writer.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // Dropped at the end of the line, which tells the other process that this is all.
    let copied = writer.stdin.take().map_or(Ok(0), |mut input| io::copy(&mut content, &mut input));
    let output = writer.wait_with_output()?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("cannot write {}: {}", path.display(), reason.trim())));
    }
    copied.map(drop)
}

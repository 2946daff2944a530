//! The files and processes of a run, and their removal even when the test process is killed.

use std::{
    fs::DirBuilder,
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use crate::logs;

/// Reads which processes to watch. Its end of input is our end, however we ended: then it kills what is left and removes the folder,
/// once more when a dying process still wrote into it. A shell does, because killing a process closes its pipes, whatever else it can
/// no longer do.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
pids=
while read -r word pid; do
  left=
  for known in $pids; do [ "$known" = "$pid" ] || left="$left $known"; done
  pids=$left
  [ "$word" = watch ] && pids="$pids $pid"
done
for pid in $pids; do kill -9 "$pid" 2>/dev/null; done
tries=0
until rm -rf -- "$1" || [ "$tries" -ge 100 ]; do
  tries=$((tries + 1))
  sleep 0.1
done
"#;

/// A folder for one run, with a guard beside it. Clones are the same folder; it goes with the last of them.
///
/// Guarantees: when this process ends, also by SIGKILL, the processes given to the guard are killed and the folder is removed.
#[derive(Clone)]
pub struct RunDirectory(Arc<Inner>);

struct Inner {
    path: PathBuf,
    input: Mutex<Option<ChildStdin>>,
    guard: Mutex<Child>,
}

impl RunDirectory {
    /// Makes the folder in the system's folder for temporary files, and its guard before it: whenever we end, there is one to remove it.
    pub fn new() -> io::Result<Self> {
        let made = tempfile::Builder::new().prefix("konverge-").make(|path| {
            let mut guard = start_guard(path)?;
            let made = DirBuilder::new().mode(0o700).create(path);
            if made.is_err() {
                // The directory belongs to another program.
                guard.kill()?;
                guard.wait()?;
            }
            made.map(|()| guard)
        })?;
        let (mut guard, path) = made.keep().map_err(|error| error.error)?;
        logs::keep_on_panic(&path);
        let input = Mutex::new(guard.stdin.take());
        Ok(Self(Arc::new(Inner { path, input, guard: Mutex::new(guard) })))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Where the log of the named process goes.
    pub fn log(&self, name: &str) -> PathBuf {
        self.0.path.join(format!("{name}.log"))
    }

    /// From now on the process is killed when we end.
    pub(crate) fn watch(&self, pid: u32) -> io::Result<()> {
        self.0.send("watch", pid)
    }

    /// The process has ended; its number may belong to another one soon.
    pub(crate) fn forget(&self, pid: u32) {
        // When the guard is gone there is nobody left to mislead.
        let _ = self.0.send("forget", pid);
    }
}

fn start_guard(folder: &Path) -> io::Result<Child> {
    let mut guard = Command::new("sh");
    guard.args(["-c", SCRIPT, "konverge-guard"]).arg(folder);
    guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

impl Inner {
    fn send(&self, word: &str, pid: u32) -> io::Result<()> {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        match input.as_mut() {
            Some(input) => writeln!(input, "{word} {pid}"),
            None => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        logs::release(&self.path);
        // The end of its input lets the guard do its work; waiting makes sure that it is done.
        drop(self.input.lock().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self.guard.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

//! A person's home directory in which `zopp` is run, apart from all others and from this process's environment.

use std::{
    fs::{self, Permissions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Home {
    program: PathBuf,
    directory: Arc<TempDir>,
    variables: Vec<(String, String)>,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let program = env!("CARGO_BIN_EXE_zopp").into();
        Self { program, directory: Arc::new(tempfile::tempdir().unwrap()), variables: Vec::new() }
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The same home, in which another `zopp` is run.
    pub(crate) fn with_program(&self, program: &Path) -> Self {
        let (directory, variables) = (Arc::clone(&self.directory), self.variables.clone());
        Self { program: program.to_owned(), directory, variables }
    }

    /// Sets a variable for all commands from now on.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.path(".zopp/config.json")
    }

    /// Writes a file that only its owner can read, as the configuration has to be.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// A command in this home, not yet started.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(line.split_whitespace())
            .env_clear()
            .env("HOME", self.directory.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.directory.path());
        command
    }

    /// Runs a command line, split at blanks, with nothing on standard input.
    pub(crate) fn run(&self, line: &str) -> Ended {
        self.run_with_stdin(line, b"")
    }

    pub(crate) fn run_with_stdin(&self, line: &str, stdin: &[u8]) -> Ended {
        let mut child =
            self.command(line).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that does not read its input closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        let output = child.wait_with_output().unwrap();
        Ended {
            code: output.status.code().expect("ended by a signal"),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a command that must succeed, and gives its standard output.
    #[track_caller]
    pub(crate) fn ok(&self, line: &str) -> String {
        self.run(line).succeeded(line)
    }

    #[track_caller]
    pub(crate) fn ok_with_stdin(&self, line: &str, stdin: &[u8]) -> String {
        self.run_with_stdin(line, stdin).succeeded(line)
    }

    /// Runs a command with `--output json` that must succeed, and gives the object.
    #[track_caller]
    pub(crate) fn json(&self, line: &str) -> Value {
        let line = format!("--output json {line}");
        let text = self.ok(&line);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("zopp {line}: {error}: {text}"))
    }

    /// Runs a command that must fail with this code, and gives its standard error.
    #[track_caller]
    pub(crate) fn fails(&self, line: &str, code: i32) -> String {
        self.run(line).failed(line, code)
    }
}

/// Returns the command of a program that needs root. A test that needs it fails where there is neither root nor a `sudo` without a password.
pub(crate) fn as_root(program: &str) -> Command {
    let (first, rest) = if rustix::process::geteuid().is_root() { ("env", &[][..]) } else { ("sudo", &["-n"][..]) };
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

impl Ended {
    #[track_caller]
    pub(crate) fn succeeded(self, line: &str) -> String {
        assert_eq!(self.code, 0, "zopp {line}: {}", self.stderr);
        String::from_utf8(self.stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn failed(self, line: &str, code: i32) -> String {
        let stdout = String::from_utf8_lossy(&self.stdout);
        assert_eq!(self.code, code, "zopp {line}: {stdout}{}", self.stderr);
        assert_eq!(stdout, "", "zopp {line}: a failure prints nothing to standard output");
        self.stderr
    }
}

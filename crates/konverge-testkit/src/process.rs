//! A server under test: started, killed, started again, and gone when we are.

use std::{
    ffi::OsString,
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    net::TcpListener,
    ops::Range,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{self, Child, Command, ExitStatus, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::{
    fs::{Access, access},
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid},
};

use crate::{guard::RunDirectory, logs, wait::eventually};

/// Becomes the program once the guard knows its number. When we are killed before that, the line never comes and the program never runs.
const GATE: &str = r#"read -r go && exec "$@" </dev/null"#;

/// How to start a program. Its output is appended to `<name>.log` in the run's directory.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProcessSpec {
    /// Names the log and the errors.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables added to our environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Variables taken out of our environment.
    pub without: Vec<OsString>,
}

impl ProcessSpec {
    /// A program without arguments.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            without: Vec::new(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Lets it have so many open files at most.
    #[must_use]
    pub fn open_files(mut self, most: u32) -> Self {
        let program = std::mem::replace(&mut self.program, "sh".into());
        let script = format!("ulimit -n {most} && exec \"$@\"");
        let shell = ["-c".into(), script.into(), self.name.clone().into(), program.into_os_string()];
        self.arguments.splice(0..0, shell);
        self
    }

    /// Takes a variable out.
    #[must_use]
    pub fn env_remove(mut self, name: impl Into<OsString>) -> Self {
        self.without.push(name.into());
        self
    }
}

/// An error of a program under test.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It could not be started.
    #[error(
        "cannot start {name} ({}): {source}; {}", program.display(), after_failed_start(source)
    )]
    Start {
        /// The process's name.
        name: String,
        /// The program.
        program: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// It ended while it was needed.
    #[error("{name} ended ({status}); {}; the end of its log {}:\n{tail}", after_end(*status), log.display())]
    Ended {
        /// The process's name.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
    /// It did not do in time what was waited for.
    #[error(
        "{name} did not {what} within {} s; if its log does not say why, the machine may be too busy: try again with less beside \
         it; the end of its log {}:\n{tail}",
        limit.as_secs(),
        log.display()
    )]
    TooSlow {
        /// The process's name.
        name: String,
        /// The condition.
        what: &'static str,
        /// For how long.
        limit: Duration,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
}

/// The next step for a program that could not be started.
fn after_failed_start(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "build or install it, or mend the path",
        io::ErrorKind::PermissionDenied => "make it executable, and its log's folder writable",
        io::ErrorKind::StorageFull => "make space, or let TMPDIR name another place",
        _ => "when processes, open files or memory have run out, end something and try again",
    }
}

/// The next step for a program that ended by itself.
fn after_end(status: ExitStatus) -> &'static str {
    match status.signal() {
        Some(9) => {
            "somebody killed it, or the kernel did because memory ran out: look into `dmesg`, make room and try again"
        }
        Some(_) => "a signal ended it: if nobody sent that, its log has the reason",
        None => "its last words are the reason: mend that and try again",
    }
}

/// The program, which can be run. The system searches for a program without a directory in its name; the log tells if it is not found.
fn found(program: &Path) -> io::Result<&Path> {
    if program.components().count() > 1 {
        access(program, Access::EXEC_OK)?;
    }
    Ok(program)
}

/// A running program. Dropping it kills it.
pub struct Process {
    spec: ProcessSpec,
    directory: RunDirectory,
    child: Option<Child>,
}

impl Process {
    /// Starts the program. It is killed with this process, however that ends.
    pub fn start(directory: &RunDirectory, spec: ProcessSpec) -> Result<Self, ProcessError> {
        let mut process = Self { spec, directory: directory.clone(), child: None };
        process.start_again()?;
        Ok(process)
    }

    /// Starts it again with the same arguments; nothing happens if it runs.
    pub fn start_again(&mut self) -> Result<(), ProcessError> {
        if self.status().is_none() && self.child.is_some() {
            return Ok(());
        }
        if let Some(ended) = self.child.take() {
            // Its number may be somebody else's by now.
            self.directory.forget(ended.id());
        }
        let spawn = || -> io::Result<Child> {
            let program = found(&self.spec.program)?;
            let log = File::options().create(true).append(true).open(self.log())?;
            let mut command = Command::new("sh");
            command.args(["-c", GATE, "konverge-gate"]).arg(program).args(&self.spec.arguments);
            command.envs(self.spec.environment.iter().map(|(name, value)| (name, value)));
            for name in &self.spec.without {
                command.env_remove(name);
            }
            let mut child = command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).spawn()?;
            self.directory.watch(child.id())?;
            if let Some(mut gate) = child.stdin.take() {
                writeln!(gate, "go")?;
            }
            Ok(child)
        };
        let child = spawn().map_err(|source| ProcessError::Start {
            name: self.spec.name.clone(),
            program: self.spec.program.clone(),
            source,
        })?;
        self.child = Some(child);
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Where it logs.
    pub fn log(&self) -> PathBuf {
        self.directory.log(&self.spec.name)
    }

    /// All that it has logged.
    pub fn logged(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Its number, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Its resident set in bytes, as the kernel accounts it. An error while it does not run, and where there is no `/proc`.
    pub fn resident(&self) -> io::Result<f64> {
        self.memory("VmRSS:")
    }

    /// The largest resident set that it ever had, in bytes, with the errors of [`resident`](Self::resident).
    pub fn peak_resident(&self) -> io::Result<f64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> io::Result<f64> {
        let pid = self.pid().ok_or_else(|| io::Error::other(format!("{} does not run", self.name())))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kibibytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
        let kibibytes = kibibytes.ok_or_else(|| io::Error::other(format!("{} has no {field}", self.name())))?;
        Ok(kibibytes * 1024.0)
    }

    /// How to start it; changes count from the next start.
    pub fn spec_mut(&mut self) -> &mut ProcessSpec {
        &mut self.spec
    }

    /// How it ended; nothing while it runs.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            self.directory.forget(child.id());
        }
    }

    /// SIGSTOP: it does nothing until it is woken, and does not know of it. All its threads sleep when this returns: the signal alone
    /// reaches one of them, and on a busy machine the others go on until that one has its turn.
    pub fn suspend(&self) -> io::Result<()> {
        let pid = self.running()?;
        kill_process(pid, Signal::STOP)?;
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        Ok(())
    }

    /// SIGCONT: it goes on as if nothing had been.
    pub fn wake(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.running()?, signal)?)
    }

    fn running(&self) -> io::Result<Pid> {
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        pid.ok_or_else(|| io::Error::other(format!("{} does not run", self.name())))
    }

    /// SIGTERM, and waits for its end. It is killed when it takes longer than `limit`, which is an error.
    pub async fn terminate(&mut self, limit: Duration) -> Result<ExitStatus, ProcessError> {
        // A process that has ended already needs no signal.
        let _ = self.signal(Signal::TERM);
        let status = self.ended(limit).await;
        self.kill();
        status
    }

    /// Waits for its end.
    pub async fn ended(&mut self, limit: Duration) -> Result<ExitStatus, ProcessError> {
        let waited = eventually(limit, || {
            let status = self.status();
            async move { status }
        })
        .await;
        waited.map_err(|_| self.too_slow("end", limit))
    }

    /// Waits until `ready` says so, or until the program ends.
    pub async fn ready<F: Future<Output = bool>>(
        &mut self,
        what: &'static str,
        limit: Duration,
        mut ready: impl FnMut() -> F,
    ) -> Result<(), ProcessError> {
        let outcome = eventually(limit, || {
            let status = self.status();
            let ready = status.is_none().then(&mut ready);
            async move {
                match (status, ready) {
                    (Some(status), _) => Some(Err(status)),
                    (None, Some(ready)) => ready.await.then_some(Ok(())),
                    (None, None) => None,
                }
            }
        })
        .await;
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => {
                let log = self.log();
                let tail = logs::tail(&log);
                Err(ProcessError::Ended { name: self.spec.name.clone(), status, log, tail })
            }
            Err(_) => Err(self.too_slow(what, limit)),
        }
    }

    fn too_slow(&self, what: &'static str, limit: Duration) -> ProcessError {
        let log = self.log();
        let tail = logs::tail(&log);
        ProcessError::TooSlow { name: self.spec.name.clone(), what, limit, log, tail }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Below the ports that systems give to connections by themselves, so that no connection takes a port before its server does.
const PORTS: Range<u16> = 10_240..32_768;

/// A port of the loopback interface that was free a moment ago. No other call in this process returns it soon, and other processes begin elsewhere.
/// Another program may still take the port before it is used, so the caller must be ready to try another one.
pub fn free_port() -> io::Result<u16> {
    static NEXT: OnceLock<AtomicU64> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU64::new(RandomState::new().hash_one(process::id())));
    let mut tried = Err(io::ErrorKind::AddrInUse.into());
    for _ in PORTS {
        let place = next.fetch_add(1, Ordering::Relaxed) % PORTS.len() as u64;
        let port = PORTS.start + u16::try_from(place).unwrap_or_default();
        tried = TcpListener::bind(("127.0.0.1", port)).map(|_| port);
        if tried.is_ok() {
            break;
        }
    }
    tried
}

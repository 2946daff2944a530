//! The secrets manager: its server, and people who use its command line.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use konverge_testkit::{Process, ProcessSpec, RunDirectory, free_port, http_get};
use tokio::{io::AsyncWriteExt, process::Command};

use crate::binary;

/// How long a server may take to be ready.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// A server process on the embedded database.
pub struct Server {
    process: Process,
    program: PathBuf,
    database: String,
    port: u16,
    health_port: u16,
}

impl Server {
    /// Starts a server with an empty database in the run's folder, and waits until it is ready.
    pub async fn start(run: &RunDirectory) -> Result<Self> {
        Self::start_on(run, format!("sqlite://{}?mode=rwc", run.path().join("zopp.db").display()), &[]).await
    }

    /// Starts a server on the database of this address, with further flags of `serve`, and waits until it is ready.
    pub async fn start_on(run: &RunDirectory, database: String, flags: &[&str]) -> Result<Self> {
        let program = binary("zopp-server")?;
        let (port, health) = (free_port()?, free_port()?);
        let spec = ProcessSpec::new("zopp-server", &program)
            .args(["--database-url", &database, "serve"])
            .args(["--addr".to_owned(), format!("127.0.0.1:{port}")])
            .args(["--health-addr".to_owned(), format!("127.0.0.1:{health}")])
            .args(flags)
            .env("RUST_LOG", "info");
        let mut server = Self { process: Process::start(run, spec)?, program, database, port, health_port: health };
        server.ready().await?;
        Ok(server)
    }

    /// Its address, as clients are told it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where its probes and its metrics are.
    pub fn health_address(&self) -> String {
        format!("127.0.0.1:{}", self.health_port)
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its resident set in bytes, as the kernel accounts it.
    pub fn resident(&self) -> Result<f64> {
        Ok(self.process.resident()?)
    }

    /// The most memory that it ever had, in bytes.
    pub fn peak_resident(&self) -> Result<f64> {
        Ok(self.process.peak_resident()?)
    }

    /// Kills it. Its data stays.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same port and data, and waits until it is ready.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process.start_again()?;
        self.ready().await
    }

    /// Makes an invite by which a person becomes known to the server.
    pub async fn invite(&self) -> Result<String> {
        let arguments = ["--database-url", &self.database, "invite", "create", "--plain"];
        let output = Command::new(&self.program).args(arguments).stdin(Stdio::null()).output().await?;
        if !output.status.success() {
            bail!("zopp-server invite create failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    async fn ready(&mut self) -> Result<()> {
        let address = self.health_address();
        let asks = || async { http_get(&address, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
        Ok(self.process.ready("get ready", READY_WITHIN, asks).await?)
    }
}

/// A person at a device: a home folder with their identities, and the command line.
#[derive(Clone)]
pub struct User {
    home: PathBuf,
    server: String,
}

impl User {
    /// A person who talks to `server` and keeps their identities in `home`.
    pub fn new(home: PathBuf, server: String) -> Result<Self> {
        std::fs::create_dir_all(&home)?;
        Ok(Self { home, server })
    }

    /// Where their identities are.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// A command of theirs, not run yet. It is killed when nobody waits for it any more.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<Command> {
        let mut command = Command::new(binary("zopp")?);
        command.args(arguments).env("HOME", &self.home).env("ZOPP_SERVER", &self.server);
        for name in ["ZOPP_WORKSPACE", "ZOPP_PROJECT", "ZOPP_ENVIRONMENT", "ZOPP_TLS_CA_CERT"] {
            command.env_remove(name);
        }
        command.current_dir(&self.home).stdin(Stdio::null()).kill_on_drop(true);
        Ok(command)
    }

    /// Runs a command and returns what it printed. Its failure is an error with what it said.
    pub async fn zopp<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<String> {
        let mut command = self.command(arguments)?;
        let output = command.output().await.context("cannot start zopp")?;
        finished(&command, &output)
    }

    /// Sets a value, handed over by standard input. `environment` is `<workspace>/<project>/<environment>`.
    pub async fn set(&self, environment: &str, key: &str, value: &[u8]) -> Result<()> {
        let mut command = self.command(["secret", "set", key, "-"])?;
        command.args(flags(environment)?).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start zopp")?;
        child.stdin.take().context("no standard input")?.write_all(value).await?;
        finished(&command, &child.wait_with_output().await?).map(drop)
    }

    /// Deletes a key.
    pub async fn delete(&self, environment: &str, key: &str) -> Result<()> {
        let arguments = ["secret", "delete", key].map(str::to_owned).into_iter().chain(flags(environment)?);
        self.zopp(arguments).await.map(drop)
    }

    /// Makes an environment in a workspace and project that exist.
    pub async fn create_environment(&self, environment: &str) -> Result<()> {
        let [workspace, project, name] = names(environment)?;
        self.zopp(["environment", "create", name, "-w", workspace, "-p", project]).await.map(drop)
    }

    /// Grants a principal a role on an environment.
    pub async fn grant(&self, environment: &str, principal: &str, role: &str) -> Result<()> {
        let arguments = ["permission", "env-set", "--principal", principal, "--role", role];
        self.zopp(arguments.map(str::to_owned).into_iter().chain(flags(environment)?)).await.map(drop)
    }

    /// Makes a service principal and returns its id. Its credentials are written to `file`.
    pub async fn create_service(&self, workspace: &str, name: &str, file: &Path) -> Result<String> {
        let mut command = self.command(["principal", "create", name, "--service", "-w", workspace])?;
        command.arg("--credentials-file").arg(file);
        let output = command.output().await.context("cannot start zopp")?;
        let said = finished(&command, &output)?;
        let id = said.split("(ID: ").nth(1).and_then(|rest| rest.split(')').next());
        id.map(str::to_owned).with_context(|| format!("no id in what zopp said: {said}"))
    }
}

fn names(environment: &str) -> Result<[&str; 3]> {
    match environment.split('/').collect::<Vec<_>>()[..] {
        [workspace, project, name] => Ok([workspace, project, name]),
        _ => bail!("{environment:?} is not <workspace>/<project>/<environment>"),
    }
}

fn flags(environment: &str) -> Result<[String; 6]> {
    let [workspace, project, name] = names(environment)?;
    Ok(["-w", workspace, "-p", project, "-e", name].map(str::to_owned))
}

fn finished(command: &Command, output: &std::process::Output) -> Result<String> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{:?} failed ({}): {}", command.as_std().get_args().collect::<Vec<_>>(), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

//! The published programs of zopp: server and command line of the first generation, from the crate registry.
//!
//! Their build takes many minutes, so no test starts it: [`PublishedZopp::find`] gives the programs of the cache, and
//! `konverge-test-stores zopp` builds them. The second generation was never published.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use konverge_testkit::{
    BuildError, Process, ProcessError, ProcessSpec, RunDirectory,
    build::{self, OUTPUT},
    free_port, http_get,
};
use sha2::{Digest, Sha256};

/// Names a folder with the programs, to use instead of the cache's.
const VARIABLE: &str = "ZOPP_PUBLISHED_BIN";

const NAME: &str = "published-zopp";
const SERVER: &str = "zopp-server";
const COMMAND_LINE: &str = "zopp";
const DATABASE: &str = "published.db";

/// The compiler of the schema: what the build scripts start as `protoc`. It takes the arguments that they give.
const PROTOX: &str = "protox";
const PROTOX_VERSION: &str = "0.10.0";

/// On an idle machine it starts in a tenth of a second.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// The published programs on this machine.
#[derive(Debug, Clone)]
pub struct PublishedZopp {
    folder: PathBuf,
}

/// A server of the published program. It ends when it is dropped.
pub struct PublishedZoppServer {
    program: PathBuf,
    process: Process,
    database: String,
    port: u16,
    /// With its database, if that is a file.
    _run: RunDirectory,
}

/// The published programs cannot be had, or do not do what they are to do.
#[derive(Debug, thiserror::Error)]
pub enum PublishedZoppError {
    /// The variable names a folder without the programs.
    #[error(
        "{VARIABLE} names {}, which does not hold {SERVER} and {COMMAND_LINE}; correct it, or unset it to use the cache", .0.display()
    )]
    Missing(PathBuf),
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] BuildError),
    /// The crate registry's client could not be started.
    #[error("cannot start cargo ({0}); the published programs are built with it")]
    NoCargo(io::Error),
    /// The build failed.
    #[error(
        "building {what} failed ({status}); what cargo said is above. Is the crate registry reachable, and is there space?"
    )]
    Build {
        /// The packages.
        what: String,
        /// How cargo ended.
        status: ExitStatus,
    },
    /// The server did not come up.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file or a port could not be used.
    #[error("cannot prepare the published server: {0}")]
    File(#[from] io::Error),
    /// The server made no invite.
    #[error("{SERVER} invite create failed: {0}")]
    Invite(String),
}

impl PublishedZopp {
    /// The version that is built.
    pub const VERSION: &'static str = "0.1.1";

    /// The programs, if this machine has them. Builds nothing.
    ///
    /// # Errors
    /// If the variable names a folder without them.
    pub fn find() -> Result<Option<Self>, PublishedZoppError> {
        if let Some(folder) = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from) {
            return if is_complete(&folder) {
                Ok(Some(Self { folder }))
            } else {
                Err(PublishedZoppError::Missing(folder))
            };
        }
        Ok(build::folder(NAME, Self::VERSION).filter(|folder| is_complete(folder)).map(|folder| Self { folder }))
    }

    /// The programs, built into the cache if they are not there. Blocks while they are built.
    ///
    /// # Errors
    /// If the variable names a folder without them, or they cannot be built.
    pub fn ensure() -> Result<Self, PublishedZoppError> {
        if let Some(found) = Self::find()? {
            return Ok(found);
        }
        let folder = build::cached(NAME, Self::VERSION, is_complete, make)?;
        Ok(Self { folder })
    }

    /// The folder of the programs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The command line.
    pub fn command_line(&self) -> PathBuf {
        self.folder.join(COMMAND_LINE)
    }

    /// The SHA-256 of both programs' files, because neither prints a version.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn digest(&self) -> Result<String, PublishedZoppError> {
        let digest = Sha256::new().chain_update(fs::read(self.folder.join(SERVER))?);
        Ok(hex::encode(digest.chain_update(fs::read(self.command_line())?).finalize()))
    }

    /// Starts a server on free ports and a new SQLite file.
    ///
    /// # Errors
    /// If it does not come up.
    pub async fn start_server(&self) -> Result<PublishedZoppServer, PublishedZoppError> {
        let run = RunDirectory::new()?;
        let database = format!("sqlite://{}?mode=rwc", run.path().join(DATABASE).display());
        self.start(run, database).await
    }

    /// Starts a server on free ports and the database of this address, such as `postgres://user@host/database`.
    ///
    /// # Errors
    /// If it does not come up.
    pub async fn start_server_on(&self, database: &str) -> Result<PublishedZoppServer, PublishedZoppError> {
        self.start(RunDirectory::new()?, database.to_owned()).await
    }

    async fn start(&self, run: RunDirectory, database: String) -> Result<PublishedZoppServer, PublishedZoppError> {
        let (port, health) = (free_port()?, free_port()?);
        let program = self.folder.join(SERVER);
        let spec = ProcessSpec::new(SERVER, &program)
            .args(["--database-url", &database, "serve"])
            .args(["--addr".to_owned(), format!("127.0.0.1:{port}")])
            .args(["--health-addr".to_owned(), format!("127.0.0.1:{health}")]);
        let mut process = Process::start(&run, spec)?;
        let address = format!("127.0.0.1:{health}");
        let is_ready = || async { http_get(&address, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
        process.ready("get ready", READY_WITHIN, is_ready).await?;
        Ok(PublishedZoppServer { program, process, database, port, _run: run })
    }
}

impl PublishedZoppServer {
    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The address of its database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// An invite to the server, as its operator makes it.
    ///
    /// # Errors
    /// If the program makes none.
    pub fn invite(&self) -> Result<String, PublishedZoppError> {
        let mut command = Command::new(&self.program);
        command.args(["--database-url", &self.database, "invite", "create", "--plain"]);
        let output = command.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            return Err(PublishedZoppError::Invite(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Ends it. Its database stays until this is dropped.
    pub fn stop(&mut self) {
        self.process.kill();
    }
}

fn is_complete(folder: &Path) -> bool {
    [SERVER, COMMAND_LINE].iter().all(|program| folder.join(program).is_file())
}

/// Builds the schema's compiler, then the programs, into `workspace`.
fn make(workspace: &Path) -> Result<(), PublishedZoppError> {
    let version = PublishedZopp::VERSION;
    eprintln!(
        "konverge: building {SERVER} and {COMMAND_LINE} {version} from the crate registry. This happens once per machine and takes about \
         ten minutes; {VARIABLE} names a folder with the programs to use instead."
    );
    let tools = workspace.join("tools");
    install(workspace, &[&format!("{PROTOX}@{PROTOX_VERSION}")], &["--features", "bin"], &tools, None)?;
    let packages = ["zopp-server", "zopp-cli"].map(|name| format!("{name}@{version}"));
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    install(workspace, &packages, &[], workspace, Some(tools.join(OUTPUT).join(PROTOX)))
}

/// Installs packages with the dependencies that they were published with.
fn install(
    workspace: &Path,
    packages: &[&str],
    arguments: &[&str],
    root: &Path,
    protoc: Option<PathBuf>,
) -> Result<(), PublishedZoppError> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(["install", "--locked"]).args(packages).args(arguments).arg("--root").arg(root);
    // Beside the workspace of the caller, whose settings are not theirs. Their queries are checked against what is packaged.
    command.current_dir(workspace).env("CARGO_TARGET_DIR", workspace.join("target")).env("SQLX_OFFLINE", "true");
    for name in ["DATABASE_URL", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command.envs(protoc.map(|path| ("PROTOC", path)));
    let status = command.stdin(Stdio::null()).status().map_err(PublishedZoppError::NoCargo)?;
    if status.success() { Ok(()) } else { Err(PublishedZoppError::Build { what: packages.join(" and "), status }) }
}

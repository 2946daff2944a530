//! The published programs of zopp: server, command line and operator of the first generation, from the crate registry.
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
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Names a folder with the programs, to use instead of the cache's.
const VARIABLE: &str = "ZOPP_PUBLISHED_BIN";

const NAME: &str = "published-zopp";
const SERVER: &str = "zopp-server";
const COMMAND_LINE: &str = "zopp";
const OPERATOR: &str = "zopp-operator";
const PROGRAMS: [&str; 3] = [SERVER, COMMAND_LINE, OPERATOR];
/// Today's date, for a run that writes the record.
const RECORD_VARIABLE: &str = "KONVERGE_ZOPP_RECORD";
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
        "{VARIABLE} names {}, which does not hold {SERVER}, {COMMAND_LINE} and {OPERATOR}; correct it, or unset it to use the cache", .0.display()
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
    /// The record of the last run cannot be read.
    #[error("{} is no record of a run with the published programs: {source}; run: cargo xtask zopp --record", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// The record of the last run is of other tests.
    #[error(
        "{} is of other tests than these, and this machine has no published programs to run these; run: cargo xtask zopp --record", .0.display()
    )]
    Outdated(PathBuf),
}

/// Tests that run the published programs. Machines without the programs hold the record of the last run against the tests as they are.
#[derive(Debug, Clone, Copy)]
pub struct PublishedSuite<'a> {
    /// The source of the tests.
    pub source: &'a str,
    /// The names of the tests.
    pub cases: &'a [&'a str],
    /// The file of the record.
    pub record: &'a Path,
}

/// The last run of a suite.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: String,
    /// The digest of the programs.
    programs: String,
    date: String,
    /// The digest of the tests.
    suite: String,
    cases: Vec<String>,
}

impl PublishedSuite<'_> {
    /// Is the record to be written by this run?
    pub fn is_to_be_recorded() -> bool {
        record_date().is_some()
    }

    /// The programs, if this machine has them. Otherwise the record must be of this suite as it is.
    ///
    /// # Errors
    /// If there are neither programs nor a record of this suite.
    pub fn programs(&self) -> Result<Option<PublishedZopp>, PublishedZoppError> {
        if let Some(found) = PublishedZopp::find()? {
            return Ok(Some(found));
        }
        eprintln!("zopp {}: not run, because this machine has no programs of it", PublishedZopp::VERSION);
        let path = self.record.to_owned();
        let record: Record = serde_json::from_slice(&fs::read(self.record)?)
            .map_err(|source| PublishedZoppError::Record { path: path.clone(), source })?;
        let is_of_this = record.suite == self.digest() && record.cases == self.cases;
        if is_of_this && !Self::is_to_be_recorded() { Ok(None) } else { Err(PublishedZoppError::Outdated(path)) }
    }

    /// Writes the record, if this is the run for it. All tests of the suite must have passed.
    ///
    /// # Errors
    /// If the programs cannot be read or the record cannot be written.
    pub fn passed(&self, published: &PublishedZopp) -> Result<(), PublishedZoppError> {
        let Some(date) = record_date() else { return Ok(()) };
        let record = Record {
            version: PublishedZopp::VERSION.to_owned(),
            programs: published.digest()?,
            date,
            suite: self.digest(),
            cases: self.cases.iter().map(|&case| case.to_owned()).collect(),
        };
        let text = serde_json::to_string_pretty(&record).map_err(io::Error::from)?;
        Ok(fs::write(self.record, text + "\n")?)
    }

    fn digest(&self) -> String {
        hex::encode(Sha256::digest(self.source))
    }
}

fn record_date() -> Option<String> {
    env::var(RECORD_VARIABLE).ok().filter(|date| !date.is_empty())
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

    /// The operator.
    pub fn operator(&self) -> PathBuf {
        self.folder.join(OPERATOR)
    }

    /// The SHA-256 of all programs' files, because none prints a version.
    fn digest(&self) -> Result<String, PublishedZoppError> {
        let mut digest = Sha256::new();
        for program in PROGRAMS {
            digest.update(fs::read(self.folder.join(program))?);
        }
        Ok(hex::encode(digest.finalize()))
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
    PROGRAMS.iter().all(|program| folder.join(program).is_file())
}

/// Builds the schema's compiler, then the programs, into `workspace`.
fn make(workspace: &Path) -> Result<(), PublishedZoppError> {
    let version = PublishedZopp::VERSION;
    eprintln!(
        "konverge: building {SERVER}, {COMMAND_LINE} and {OPERATOR} {version} from the crate registry. This happens once per machine and \
         takes about fifteen minutes; {VARIABLE} names a folder with the programs to use instead."
    );
    let tools = workspace.join("tools");
    install(workspace, &[&format!("{PROTOX}@{PROTOX_VERSION}")], &["--features", "bin"], &tools, None)?;
    let packages = ["zopp-server", "zopp-cli", "zopp-operator"].map(|name| format!("{name}@{version}"));
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

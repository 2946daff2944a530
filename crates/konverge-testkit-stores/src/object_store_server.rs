//! A real S3 server.
//!
//! It is versitygw, a gateway from S3 to folders: one Go module under Apache-2.0 that the module proxy has. It builds in a minute
//! and needs no database. It checks signatures of version 4, and its listings have pages as those of S3. `MinIO` was the other
//! candidate; its community server is AGPL-3.0 and its module takes several times as long.

use std::{fs, io, path::PathBuf, time::Duration};

use konverge_testkit::{
    BuildError, Process, ProcessError, ProcessSpec, RunDirectory,
    build::{self, Module, Program},
    free_port,
};
use tokio::net::TcpStream;

const PROGRAM: &str = "versitygw";

/// A server that starts on an idle machine in tens of milliseconds.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Another process may take the free port that was found; this often another one is tried.
const ATTEMPTS: u32 = 3;

/// An S3 server with one bucket. Dropping it ends it.
pub struct ObjectStoreServer {
    process: Process,
    port: u16,
    /// Removed when the last of its clones goes, so it stays as long as the process.
    run: RunDirectory,
}

/// No S3 server could be had.
#[derive(Debug, thiserror::Error)]
pub enum ObjectStoreError {
    /// It could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// It did not come up.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file could not be written.
    #[error("cannot prepare the S3 server's files: {0}")]
    File(#[from] io::Error),
}

impl ObjectStoreServer {
    /// The bucket that is there from the start.
    pub const BUCKET: &'static str = "bucket";
    /// The only access key's id.
    pub const ACCESS_KEY_ID: &'static str = "konverge-test";
    /// The only access key's secret.
    pub const SECRET_ACCESS_KEY: &'static str = "not-a-secret-outside-of-this-test";
    /// The region that signatures name.
    pub const REGION: &'static str = "us-east-1";

    /// Builds the server if this machine has not done so before, starts it on a free port, and waits until it answers.
    pub async fn start() -> Result<Self, ObjectStoreError> {
        let program = tokio::task::spawn_blocking(|| build::ensure(&module())).await.map_err(io::Error::other)??;
        let program = program.join(PROGRAM);
        let mut attempt = 1;
        loop {
            match Self::start_on(free_port()?, program.clone()).await {
                Err(ObjectStoreError::Process(ProcessError::Ended { .. })) if attempt < ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    async fn start_on(port: u16, program: PathBuf) -> Result<Self, ObjectStoreError> {
        let run = RunDirectory::new()?;
        let (data, metadata) = (run.path().join("data"), run.path().join("metadata"));
        // A folder is a bucket.
        fs::create_dir_all(data.join(Self::BUCKET))?;
        fs::create_dir_all(&metadata)?;
        let spec = ProcessSpec::new("object-store", program)
            .args(["--port", &format!("127.0.0.1:{port}"), "--region", Self::REGION, "--quiet", "posix"])
            // Beside the data, since not every file system has extended attributes.
            .arg("--sidecar")
            .args([metadata, data])
            .env("ROOT_ACCESS_KEY_ID", Self::ACCESS_KEY_ID)
            .env("ROOT_SECRET_ACCESS_KEY", Self::SECRET_ACCESS_KEY);
        let mut this = Self { process: Process::start(&run, spec)?, port, run };
        this.ready().await?;
        Ok(this)
    }

    async fn ready(&mut self) -> Result<(), ProcessError> {
        let port = self.port;
        let answers = || async move { TcpStream::connect(("127.0.0.1", port)).await.is_ok() };
        self.process.ready("accept connections", READY_WITHIN, answers).await
    }

    /// Where it answers, for clients that put the bucket into the path.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The folder of this run, with its log.
    pub fn run_directory(&self) -> &RunDirectory {
        &self.run
    }

    /// Kills it. Its objects stay.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, on the same port, and waits until it answers.
    pub async fn start_again(&mut self) -> Result<(), ProcessError> {
        self.process.start_again()?;
        self.ready().await
    }
}

fn module() -> Module {
    Module {
        name: "object-store",
        announcement:
            "building an S3 server from a Go module. This happens once per machine and takes one to three minutes."
                .to_owned(),
        go_mod: include_str!("../object-store/go.mod"),
        go_sum: include_str!("../object-store/go.sum"),
        sources: &[],
        programs: vec![Program {
            name: PROGRAM,
            package: "github.com/versity/versitygw/cmd/versitygw".to_owned(),
            linker: String::new(),
            tags: "",
        }],
    }
}

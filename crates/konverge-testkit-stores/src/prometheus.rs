//! Prometheus: its evaluation of alerts without a server, and the server.

use std::{fs, io, path::PathBuf, time::Duration};

use konverge_testkit::{
    Process, ProcessError, ProcessSpec, RunDirectory,
    build::{self, BuildError, Module, Program},
    free_port, http_get,
};

const PROMTOOL: &str = "promtool";
const PROMETHEUS: &str = "prometheus";

/// A server without data starts within a second on an idle machine.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// The path of promtool, which evaluates alerting rules over given series. It is built if it is not in the cache. Blocks while it builds.
///
/// # Errors
/// If Go is missing or too old, or if the build fails.
pub fn promtool() -> Result<PathBuf, BuildError> {
    program(PROMTOOL)
}

fn program(name: &'static str) -> Result<PathBuf, BuildError> {
    let of = |name: &'static str| Program {
        name,
        package: format!("github.com/prometheus/prometheus/cmd/{name}"),
        linker: String::new(),
        // Neither evaluation nor targets with an address need service discovery, whose cloud clients are most of the dependencies.
        tags: "remove_all_sd",
    };
    let module = Module {
        name: PROMTOOL,
        announcement: format!(
            "building {name} from Go modules for tests of alerts. This happens once per machine and takes about two minutes."
        ),
        go_mod: include_str!("../promtool/go.mod"),
        go_sum: include_str!("../promtool/go.sum"),
        sources: &[],
        programs: [PROMTOOL, PROMETHEUS].map(of).into(),
    };
    Ok(build::ensure_programs(&module, &[name])?.join(name))
}

/// A Prometheus with a configuration. Dropping it ends it.
pub struct PrometheusServer {
    process: Process,
    address: String,
    /// Removed when the last of its clones goes, so it stays as long as the process.
    run: RunDirectory,
}

/// No Prometheus could be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrometheusError {
    /// It could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// It did not come up.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file could not be written.
    #[error("cannot prepare the files of Prometheus: {0}")]
    File(#[from] io::Error),
}

impl PrometheusServer {
    /// Builds the server if this machine has not done so before, starts it with these files on a free port, and waits until it is ready. The first file is
    /// its configuration, which names the others.
    ///
    /// # Errors
    /// If the build fails, or if the server refuses the configuration; its log says why.
    pub async fn start(files: &[(&str, String)]) -> Result<Self, PrometheusError> {
        let program = tokio::task::spawn_blocking(|| program(PROMETHEUS)).await.map_err(io::Error::other)??;
        let run = RunDirectory::new()?;
        for (name, content) in files {
            fs::write(run.path().join(name), content)?;
        }
        let configuration = run.path().join(files.first().map_or(PROMETHEUS, |(name, _)| name));
        let address = format!("127.0.0.1:{}", free_port()?);
        let spec = ProcessSpec::new(PROMETHEUS, program)
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", run.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"));
        let mut process = Process::start(&run, spec)?;
        let is_ready = || async { http_get(&address, "/-/ready").await.is_ok_and(|(code, _)| code == 200) };
        process.ready("become ready", READY_WITHIN, is_ready).await?;
        Ok(Self { process, address, run })
    }

    /// Where it answers.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The folder of this run, with its log.
    pub fn run_directory(&self) -> &RunDirectory {
        &self.run
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

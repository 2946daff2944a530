//! A peer at work, and what it tells.

use std::{
    collections::HashSet,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use konverge_bench_protocol::{Job, now};
use konverge_testkit::{Process, ProcessSpec, RunDirectory};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_mins(3);

/// How often the output is looked at: seldom enough to take no time from what is measured.
const LOOK: Duration = Duration::from_millis(50);

/// One run of a reconciler. Times are nanoseconds since 1970.
#[derive(Debug, Deserialize)]
pub(crate) struct Run {
    #[serde(rename = "run")]
    pub(crate) name: String,
    pub(crate) mark: String,
    pub(crate) at: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Run(Run),
    All { all: usize, at: u64 },
}

pub(crate) struct Peer {
    process: Process,
    /// Just before it was started.
    pub(crate) started: u64,
    read_to: u64,
    pub(crate) runs: Vec<Run>,
    all: Option<(usize, u64)>,
}

impl Peer {
    pub(super) fn start(directory: &RunDirectory, name: &str, program: PathBuf, job: &Job) -> Result<Self> {
        let started = now();
        let process = Process::start(directory, ProcessSpec::new(name, program).args(job.arguments()))?;
        Ok(Self { process, started, read_to: 0, runs: Vec::new(), all: None })
    }

    /// Waits until it says that these were all: how many, and when.
    pub(crate) async fn all(&mut self) -> Result<(usize, u64)> {
        self.until("all runs", |peer| peer.all).await
    }

    /// Waits until what it has told is enough.
    pub(crate) async fn until<T>(&mut self, what: &str, found: impl Fn(&Self) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.look()?;
            if let Some(found) = found(self) {
                return Ok(found);
            }
            if let Some(status) = self.process.status() {
                bail!("a peer ended ({status}) before {what}; it said: {}", self.process.logged());
            }
            if Instant::now() > deadline {
                bail!("a peer did not come to {what} within {LIMIT:?}; see {}", self.process.log().display());
            }
            sleep(LOOK).await;
        }
    }

    /// How many objects had a run.
    pub(crate) fn objects_seen(&self) -> usize {
        self.runs.iter().map(|run| run.name.as_str()).collect::<HashSet<_>>().len()
    }

    /// Its resident set in bytes, as the kernel accounts it.
    pub(crate) fn resident(&self) -> Result<f64> {
        Ok(self.process.resident()?)
    }

    /// Takes in the whole lines that came since the last time.
    pub(crate) fn look(&mut self) -> Result<()> {
        let mut file = File::open(self.process.log())?;
        file.seek(SeekFrom::Start(self.read_to))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let Some(end) = text.rfind('\n') else { return Ok(()) };
        let whole = &text[..=end];
        self.read_to += whole.len() as u64;
        // Other lines are from a library, and go to standard error.
        for line in whole.lines().filter(|line| line.starts_with('{')) {
            match serde_json::from_str(line).with_context(|| format!("a peer said {line}"))? {
                Line::Run(run) => self.runs.push(run),
                Line::All { all, at } => self.all = Some((all, at)),
            }
        }
        Ok(())
    }
}

/// The time between two moments of [`now`], which may be in the other order.
pub(crate) fn milliseconds_between(earlier: u64, later: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "differences of a run are far below 2^52 nanoseconds")]
    let nanoseconds = (i128::from(later) - i128::from(earlier)) as f64;
    nanoseconds / 1e6
}

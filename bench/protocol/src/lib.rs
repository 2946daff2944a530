//! The protocol between the benchmark and the programs that it compares ("peers").
//!
//! A peer reads its [`Job`] from its arguments, and [`Tell`]s on its standard output what happens, one JSON object a line.
//! It writes `{"run":"name","mark":"7","at":nanoseconds}` for each run of the reconciler, and
//! `{"all":count,"at":nanoseconds}` once. It has no dependencies, since one of the peers is built with an older kube in a
//! workspace of its own.

use std::{
    env,
    io::{BufWriter, Write, stdout},
    str::FromStr,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The annotation that the benchmark changes; its value is told with each run.
pub const MARK: &str = "bench.konverge.dev/mark";

/// The task of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Watch `ConfigMap`s, do nothing for as long as the job says, and tell of each run.
    Runs,
    /// The same, and tell only when there were as many runs as expected.
    Hold,
    /// The same with metadata alone.
    HoldMetadata,
    /// List all `ConfigMap`s once, page by page, and keep them.
    List,
    /// The example configmapsync.
    Sync,
}

impl Work {
    const ALL: [(Self, &str); 5] = [
        (Self::Runs, "runs"),
        (Self::Hold, "hold"),
        (Self::HoldMetadata, "hold-metadata"),
        (Self::List, "list"),
        (Self::Sync, "sync"),
    ];
}

/// The task of a peer, and its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The task.
    pub work: Work,
    /// The kubeconfig file.
    pub kubeconfig: String,
    /// The namespace whose objects it watches.
    pub namespace: String,
    /// How long a run takes.
    pub takes: Duration,
    /// After how many runs [`Tell`] says that these were all.
    pub expected: usize,
}

/// How many runs go on at once, in every peer.
pub const WORKERS: u16 = 8;

impl Job {
    /// The arguments that say it.
    pub fn arguments(&self) -> [String; 5] {
        let work = Work::ALL.iter().find(|(work, _)| *work == self.work).map_or("", |(_, name)| name);
        [
            work.to_owned(),
            self.kubeconfig.clone(),
            self.namespace.clone(),
            self.takes.as_millis().to_string(),
            self.expected.to_string(),
        ]
    }

    /// The job that this process was started for.
    pub fn from_arguments() -> Result<Self, String> {
        Self::parse(&env::args().skip(1).collect::<Vec<_>>())
    }

    fn parse(arguments: &[String]) -> Result<Self, String> {
        let [work, kubeconfig, namespace, takes, expected] = arguments else {
            return Err(format!("five arguments are needed, and there are {}", arguments.len()));
        };
        let work = Work::ALL.iter().find(|(_, name)| name == work).ok_or_else(|| format!("no such work: {work}"))?.0;
        Ok(Self {
            work,
            kubeconfig: kubeconfig.clone(),
            namespace: namespace.clone(),
            takes: Duration::from_millis(number(takes)?),
            expected: number(expected)?,
        })
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("not a number: {text}"))
}

/// Tells the benchmark what happens. Telling takes the time and sends it to a thread that writes, so that a run waits for nothing.
pub struct Tell {
    lines: Sender<String>,
    runs: AtomicUsize,
    expected: usize,
    each: bool,
}

impl Tell {
    /// Begins to write to standard output.
    pub fn begin(job: &Job) -> Self {
        let (lines, written) = channel();
        thread::spawn(move || write(&written));
        Self {
            lines,
            runs: AtomicUsize::new(0),
            expected: job.expected,
            each: matches!(job.work, Work::Runs | Work::Sync),
        }
    }

    /// A run has begun, of the object of that name with that value of [`MARK`].
    pub fn run(&self, name: &str, mark: Option<&str>) {
        if self.each {
            let mark = mark.unwrap_or_default();
            self.line(format!(r#"{{"run":"{name}","mark":"{mark}","at":{}}}"#, now()));
        }
        if self.runs.fetch_add(1, Ordering::Relaxed) + 1 == self.expected {
            self.all(self.expected);
        }
    }

    /// So many objects were seen, and these are all.
    pub fn all(&self, count: usize) {
        self.line(format!(r#"{{"all":{count},"at":{}}}"#, now()));
    }

    fn line(&self, line: String) {
        // The thread ends with the process.
        let _ = self.lines.send(line);
    }
}

/// Writes what there is, and makes it visible before it waits for more.
fn write(lines: &Receiver<String>) {
    let mut out = BufWriter::new(stdout().lock());
    loop {
        let line = match lines.try_recv() {
            Ok(line) => line,
            Err(TryRecvError::Empty) => {
                let _ = out.flush();
                let Ok(line) = lines.recv() else { return };
                line
            }
            Err(TryRecvError::Disconnected) => return,
        };
        if writeln!(out, "{line}").is_err() {
            return;
        }
    }
}

/// Nanoseconds since 1970, by the clock that all processes of the machine share.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_comes_through_its_arguments() {
        for (work, _) in Work::ALL {
            let job = Job {
                work,
                kubeconfig: "/tmp/a file".to_owned(),
                namespace: "bench".to_owned(),
                takes: Duration::from_millis(5),
                expected: 500,
            };
            assert_eq!(Job::parse(&job.arguments()), Ok(job));
        }
        assert!(Job::parse(&["runs".to_owned()]).is_err());
    }
}

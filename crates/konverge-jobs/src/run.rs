//! The command.

use std::{error::Error, fmt::Write, process::ExitCode};

use clap::{Args, Command, FromArgMatches};
use konverge_runtime::{
    ManagerGroup,
    http_server::{BindError, Listen},
    manager::{RunError, Signals},
    telemetry::{self, JOB, LogFormat, TelemetryError},
};
use tracing::Instrument;

use crate::{
    job::Job,
    lines::{self, Chosen, Misuse},
};

/// The command of the program that runs jobs.
const RUN: &str = "run";

/// The program's name in errors.
const PROGRAM: &str = "konverge";

/// For a command line that makes no sense, as clap has it.
const MISUSE: u8 = 2;

/// Which jobs run, and what they share.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// A job with its flags, split as a shell does it; once for each job that is to run
    #[arg(long = "job", value_name = "\"JOB FLAGS\"", required = true, allow_hyphen_values = true)]
    pub jobs: Vec<String>,
    /// Where /healthz, /readyz and, for each job, /metrics/JOB are served; 0 is nowhere
    #[arg(
        long,
        visible_alias = "health-probe-bind-address",
        env = "KONVERGE_BIND_ADDRESS",
        default_value = ":8080",
        value_name = "ADDRESS"
    )]
    pub bind_address: Listen,
    /// Form of the log lines; how many there are is up to `RUST_LOG`
    #[arg(long, env = "KONVERGE_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// The process cannot start, or could not go on.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("job {name} cannot start")]
    Job {
        name: &'static str,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Which jobs there are, for help.
pub fn about(jobs: &[Job]) -> String {
    let mut text = String::from("Jobs:\n");
    // Writing to a string cannot fail.
    for job in jobs {
        let _ = writeln!(text, "  {:<6}{}", job.name, job.about);
    }
    text.push_str("\nThe flags of each, and their variables, are those of its own program: konverge run --job \"");
    let _ = write!(text, "{} --help\"", jobs.first().map_or("JOB", |job| job.name));
    text
}

/// The flags of a job among the arguments of a container, if these are those of `konverge run` and it runs the job. The variables of the
/// reader's own process do not count.
pub fn flags_of(job: &str, arguments: &[String]) -> Option<Vec<String>> {
    let blind = Run::augment_args(Command::new(RUN)).mut_args(|argument| argument.env(None::<&'static str>));
    let started =
        blind.try_get_matches_from(arguments.first().filter(|first| *first == RUN).map(|_| arguments)?).ok()?;
    let run = Run::from_arg_matches(&started).ok()?;
    let mut lines = run.jobs.iter().filter_map(|line| shlex::split(line));
    lines.find(|words| words.first().is_some_and(|first| first == job)).map(|words| words[1..].to_vec())
}

impl Run {
    /// Runs the jobs until they are told to stop or one of them ends.
    pub async fn run(self, jobs: &[Job]) -> ExitCode {
        match lines::read(jobs, &self.jobs) {
            Ok(chosen) => telemetry::exit_code(PROGRAM, self.start(chosen).await),
            Err(Misuse::HelpOrVersion { said }) => {
                print!("{said}");
                ExitCode::SUCCESS
            }
            Err(misuse) => {
                eprintln!("error: {}", misuse.to_string().trim_end());
                ExitCode::from(MISUSE)
            }
        }
    }

    async fn start(self, chosen: Vec<Chosen>) -> Result<(), StartError> {
        let mut signals = Signals::catch()?;
        let filter = telemetry::init(self.log_format)?;
        let names: Vec<_> = chosen.iter().map(|(name, _)| *name).collect();
        tracing::info!(version = env!("CARGO_PKG_VERSION"), jobs = names.join(","), "starting");
        let mut group = ManagerGroup::listen(self.bind_address).await?;
        group.log_filter(filter);
        for (name, ready) in chosen {
            let span = tracing::info_span!(target: JOB, "job", %name);
            let manager = async {
                tracing::info!(settings = ready.settings, "starting");
                ready.manager.await
            };
            // No task runs yet that would have to be ended.
            let Some(manager) = signals.until(manager.instrument(span)).await else { return Ok(()) };
            group.job(name, manager.map_err(|source| StartError::Job { name, source })?);
        }
        Ok(group.run_with(signals).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_a_job_are_found_among_those_of_the_process() {
        let lines = ["run", "--job=pull --value 'a  b'", "--bind-address", "0", "--job", "roll", "--log-format=json"];
        for (job, arguments, expected) in [
            ("pull", &lines[..], Some(&["--value", "a  b"][..])),
            ("roll", &lines, Some(&[])),
            ("push", &lines, None),
            // Another command, no command, and what would not start.
            ("pull", &lines[1..], None),
            ("pull", &["debug", "--job=pull"], None),
            ("pull", &["run", "--no-such-flag", "--job=pull"], None),
            ("pull", &["run", "--job=pull --value 'a"], None),
            ("pull", &[], None),
        ] {
            let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            let flags = flags_of(job, &arguments);
            assert_eq!(
                flags.as_deref(),
                expected.map(|flags| flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>()).as_deref()
            );
        }
    }
}

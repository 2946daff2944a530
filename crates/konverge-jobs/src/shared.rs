//! Flags that mean something else where a job is one of several.

use std::ffi::OsString;

use clap::{ArgMatches, Command, error::ErrorKind, parser::ValueSource};
use konverge_version::variables;

/// Which arguments of a program are another matter when it is a job among others. The names are those of clap.
#[derive(Debug, Clone, Copy)]
pub struct Shared {
    /// Where it serves health and metrics: nowhere unless the command line says so itself, because the process does it. A variable is for
    /// the program of its own.
    pub addresses: &'static [&'static str],
    /// Settings that exist once per process, such as the log format: refused for a job.
    pub of_process: &'static [&'static str],
}

impl Shared {
    /// Reads the command line of the job of this name, with which it begins.
    pub fn matches(
        &self,
        job: &'static str,
        command: Command,
        line: impl IntoIterator<Item = OsString>,
    ) -> Result<ArgMatches, clap::Error> {
        let mut command = variables::ignore_empty(command).name(job).bin_name(job);
        for name in self.addresses {
            command = command.mut_arg(name, |argument| argument.env(None::<&'static str>).default_value("0"));
        }
        for name in self.of_process {
            command = command.mut_arg(name, |argument| argument.env(None::<&'static str>).hide(true));
        }
        let matches = command.try_get_matches_from_mut(line)?;
        let given = |name: &&&str| matches.value_source(name) == Some(ValueSource::CommandLine);
        match self.of_process.iter().find(given) {
            Some(name) => {
                let flag = name.replace('_', "-");
                let why = format!("--{flag} is of the whole process and not of one job; see konverge run --help");
                Err(command.error(ErrorKind::ArgumentConflict, why))
            }
            None => Ok(matches),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{FromArgMatches, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "its-own-program")]
    struct Config {
        #[arg(long, env = "KONVERGE_JOBS_TEST_ADDRESS", default_value = ":8080")]
        address: String,
        #[arg(long, default_value = "text")]
        log_format: String,
        #[arg(long, default_value = "one")]
        other: String,
    }

    fn read(line: &str) -> Result<Config, String> {
        use clap::CommandFactory;
        let shared = Shared { addresses: &["address"], of_process: &["log_format"] };
        let matches = shared.matches("pull", Config::command(), line.split(' ').map(OsString::from));
        matches.and_then(|matches| Config::from_arg_matches(&matches)).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_is_taken_only_where_the_line_says_so() {
        assert_eq!(read("pull").unwrap().address, "0");
        assert_eq!(read("pull --address :8080").unwrap().address, ":8080");
        let config = read("pull --other two").unwrap();
        assert_eq!((&*config.other, &*config.log_format), ("two", "text"));
    }

    #[test]
    fn what_is_of_the_process_is_refused_and_not_shown() {
        let told = read("pull --log-format json").unwrap_err();
        assert!(told.contains("--log-format is of the whole process and not of one job"), "{told}");
        let help = read("pull --help").unwrap_err();
        assert!(help.contains("Usage: pull [OPTIONS]") && !help.contains("log-format"), "{help}");
        assert!(!help.contains("KONVERGE_JOBS_TEST_ADDRESS") && help.contains("[default: 0]"), "{help}");
    }
}

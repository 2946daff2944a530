//! The limits of the process: processors and memory, by its cgroup.
//!
//! The original is told by `GOMAXPROCS` and `GOMEMLIMIT`, which its manifests set. The first says how many threads the program starts, the second is
//! reported and no more; the limits that hold are those of the cgroup.

use std::{fmt, fs, path::Path};

/// Where a container sees its own cgroup, in both versions.
const CGROUP: &str = "/sys/fs/cgroup";

/// Version 1 says so, or more, where there is no limit.
const UNLIMITED: u64 = 1 << 60;

/// More threads than that do nothing for a program that waits for answers.
const MOST_WORKERS: usize = 16;

/// The limits of the process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuntimeInfo {
    /// Processors of the machine that it may run on.
    pub processors: usize,
    /// Processors that it may use in the long run, if there is a limit.
    pub cpu_limit: Option<f64>,
    /// Bytes of memory that it may use, if there is a limit.
    pub memory_limit: Option<u64>,
    /// `GOMAXPROCS`, if it is a number above zero.
    pub go_max_procs: Option<usize>,
    /// `GOMEMLIMIT` in bytes, if it is an amount.
    pub go_mem_limit: Option<u64>,
    /// Notes about invalid settings.
    pub notes: Vec<String>,
}

impl RuntimeInfo {
    /// Reads the limits of this process.
    pub fn detect() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let file = |name: &str| fs::read_to_string(Path::new(CGROUP).join(name)).ok();
        Self::read(processors, file, |name| std::env::var(name).ok())
    }

    /// The same of the contents of files beneath the cgroup, and of variables.
    fn read(
        processors: usize,
        file: impl Fn(&str) -> Option<String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let of_version_1 = || {
            let quota = file("cpu/cpu.cfs_quota_us")?;
            cpu_max(&format!("{} {}", quota.trim(), file("cpu/cpu.cfs_period_us")?.trim()))
        };
        let mut notes = Vec::new();
        let mut given = |name: &str, expected: &str, parse: fn(&str) -> Option<u64>| {
            let text = variable(name).filter(|text| !text.is_empty())?;
            let value = parse(&text);
            if value.is_none() {
                notes.push(format!("{name} is {text:?} and is ignored; {expected} is expected"));
            }
            value
        };
        let go_max_procs = given("GOMAXPROCS", "a number above zero", above_zero);
        let go_mem_limit = given("GOMEMLIMIT", "a number of bytes, or one with Ki, Mi or Gi,", amount);
        Self {
            processors,
            cpu_limit: file("cpu.max").map_or_else(of_version_1, |text| cpu_max(&text)),
            memory_limit: file("memory.max")
                .or_else(|| file("memory/memory.limit_in_bytes"))
                .and_then(|text| above_zero(text.trim()))
                .filter(|limit| *limit < UNLIMITED),
            go_max_procs: go_max_procs.and_then(|count| usize::try_from(count).ok()),
            go_mem_limit,
            notes,
        }
    }

    /// How many threads work: one for each processor that may be used, at least one.
    pub fn workers(&self) -> usize {
        let by_quota = self.cpu_limit.map_or(usize::MAX, rounded_up);
        let count = self.go_max_procs.unwrap_or(by_quota.min(self.processors));
        count.clamp(1, MOST_WORKERS)
    }

    /// As the original's metric names them, of a process with so many threads that work.
    pub(crate) fn settings(&self, workers: usize) -> [(&'static str, String); 4] {
        let bytes = self.go_mem_limit.or(self.memory_limit);
        [
            ("gomaxprocs", workers.to_string()),
            ("numcpu", self.processors.to_string()),
            ("gomemlimit_bytes", bytes.map_or("none".to_owned(), |bytes| bytes.to_string())),
            // There is no garbage to collect.
            ("gogc", "off".to_owned()),
        ]
    }
}

/// In one line for the log.
impl fmt::Display for RuntimeInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn shown(value: Option<impl fmt::Display>) -> String {
            value.map_or("none".to_owned(), |value| value.to_string())
        }
        write!(formatter, "processors={} ", self.processors)?;
        write!(formatter, "cpu-limit={} memory-limit={} ", shown(self.cpu_limit), shown(self.memory_limit))?;
        write!(formatter, "GOMAXPROCS={} GOMEMLIMIT={}", shown(self.go_max_procs), shown(self.go_mem_limit))
    }
}

/// Processors by a quota and a period in microseconds, as in `cpu.max`; a quota of `max` or below zero is no limit.
fn cpu_max(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: u32 = words.next()?.parse().ok()?;
    let period: u32 = words.next()?.parse().ok()?;
    (quota > 0 && period > 0).then(|| f64::from(quota) / f64::from(period))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a quotient of two u32 above zero fits, and casts of floats saturate"
)]
fn rounded_up(processors: f64) -> usize {
    processors.ceil() as usize
}

fn above_zero(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number > 0)
}

/// An amount of memory as manifests write it, and as Go does: plain, or with `Ki`, `Mi`, `Gi`, `Ti` and a `B` behind.
fn amount(text: &str) -> Option<u64> {
    let text = text.strip_suffix('B').unwrap_or(text);
    let (digits, unit) = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)]
        .into_iter()
        .find_map(|(unit, shift)| text.strip_suffix(unit).map(|digits| (digits, 1_u64 << shift)))
        .unwrap_or((text, 1));
    above_zero(digits)?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(processors: usize, files: &[(&str, &str)], variables: &[(&str, &str)]) -> RuntimeInfo {
        let find = |pairs: &[(&str, &str)], name: &str| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, text)| (*text).to_owned())
        };
        RuntimeInfo::read(processors, |name| find(files, name), |name| find(variables, name))
    }

    #[test]
    fn limits_of_both_versions() {
        for (files, cpu, memory, workers) in [
            (&[][..], None, None, 8),
            (&[("cpu.max", "max 100000\n"), ("memory.max", "max\n")], None, None, 8),
            (&[("cpu.max", "50000 100000\n"), ("memory.max", "134217728\n")], Some(0.5), Some(134_217_728), 1),
            (&[("cpu.max", "250000 100000")], Some(2.5), None, 3),
            (&[("cpu.max", "9900000 100000")], Some(99.0), None, 8),
            (&[("cpu.max", "0 0")], None, None, 8),
            (&[("cpu.max", "nonsense")], None, None, 8),
            (&[("cpu/cpu.cfs_quota_us", "-1\n"), ("cpu/cpu.cfs_period_us", "100000\n")], None, None, 8),
            (&[("cpu/cpu.cfs_quota_us", "200000\n"), ("cpu/cpu.cfs_period_us", "100000\n")], Some(2.0), None, 2),
            (&[("memory/memory.limit_in_bytes", "9223372036854771712\n")], None, None, 8),
            (&[("memory/memory.limit_in_bytes", "1048576\n")], None, Some(1_048_576), 8),
        ] {
            let info = read(8, files, &[]);
            assert_eq!((info.cpu_limit, info.memory_limit, info.workers()), (cpu, memory, workers), "{files:?}");
        }
    }

    #[test]
    fn variables_of_go() {
        for (name, text, expected, notes) in [
            ("GOMAXPROCS", "2", "GOMAXPROCS=2 GOMEMLIMIT=none", 0),
            ("GOMAXPROCS", "", "GOMAXPROCS=none GOMEMLIMIT=none", 0),
            ("GOMAXPROCS", "0", "GOMAXPROCS=none GOMEMLIMIT=none", 1),
            ("GOMAXPROCS", "many", "GOMAXPROCS=none GOMEMLIMIT=none", 1),
            ("GOMEMLIMIT", "134217728", "GOMAXPROCS=none GOMEMLIMIT=134217728", 0),
            ("GOMEMLIMIT", "128Mi", "GOMAXPROCS=none GOMEMLIMIT=134217728", 0),
            ("GOMEMLIMIT", "1GiB", "GOMAXPROCS=none GOMEMLIMIT=1073741824", 0),
            ("GOMEMLIMIT", "5B", "GOMAXPROCS=none GOMEMLIMIT=5", 0),
            ("GOMEMLIMIT", "1.5Gi", "GOMAXPROCS=none GOMEMLIMIT=none", 1),
            ("GOMEMLIMIT", "99999999999Ti", "GOMAXPROCS=none GOMEMLIMIT=none", 1),
        ] {
            let info = read(8, &[], &[(name, text)]);
            assert!(info.to_string().ends_with(expected), "{name}={text}: {info}");
            assert_eq!(info.notes.len(), notes, "{name}={text}: {:?}", info.notes);
        }
        assert_eq!(read(8, &[("cpu.max", "100000 100000")], &[("GOMAXPROCS", "2")]).workers(), 2);
        assert_eq!(read(64, &[], &[]).workers(), MOST_WORKERS);
        assert_eq!(read(0, &[], &[]).workers(), 1);
    }

    #[test]
    fn what_the_metric_says() {
        let info = read(4, &[("cpu.max", "200000 100000"), ("memory.max", "1024")], &[]);
        let settings = info.settings(2).map(|(setting, value)| format!("{setting}={value}"));
        assert_eq!(settings, ["gomaxprocs=2", "numcpu=4", "gomemlimit_bytes=1024", "gogc=off"]);
        let told = read(4, &[("memory.max", "1024")], &[("GOMEMLIMIT", "512")]);
        assert_eq!(told.settings(1)[2].1, "512");
    }

    #[test]
    fn this_process_has_something() {
        let info = RuntimeInfo::detect();
        assert!(info.processors > 0 && info.workers() > 0, "{info}");
    }
}

//! The commit that an image or an archive is built from.

use std::{env, process::Command};

use anyhow::{Context, Result, bail};

use crate::paths;

/// The commit of the work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    /// Its hash; `-dirty` follows where files differ from it.
    pub(crate) hash: String,
    /// Its time in seconds since 1970. All files of an image have it.
    pub(crate) seconds: u64,
    /// The same (RFC 3339, UTC).
    pub(crate) time: String,
}

impl Commit {
    /// Reads it from git. `SOURCE_DATE_EPOCH` takes precedence over its time.
    pub(crate) fn of_work_tree() -> Result<Self> {
        let hash = git(&["rev-parse", "--short=12", "HEAD"])?;
        let is_dirty = !git(&["status", "--porcelain"])?.is_empty();
        let seconds = match env::var("SOURCE_DATE_EPOCH") {
            Ok(given) => given,
            Err(_) => git(&["log", "-1", "--format=%ct"])?,
        };
        let seconds: u64 = seconds.parse().with_context(|| format!("{seconds:?} is no number of seconds"))?;
        let hash = if is_dirty { format!("{hash}-dirty") } else { hash };
        Ok(Self { hash, seconds, time: utc(seconds) })
    }

    /// Tells the compiler, which writes it into each program (`konverge-version`).
    pub(crate) fn tell(&self, command: &mut Command) {
        command.env("KONVERGE_COMMIT", &self.hash).env("KONVERGE_BUILT", &self.time);
    }
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").current_dir(paths::workspace()).args(arguments).output();
    let output = output.context("cannot start git; an image names the commit that it was built from")?;
    if !output.status.success() {
        bail!("git {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A time of this calendar, by the days since the first of March of the year 0 (an era has 146,097 days).
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_a_time_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_401_905, "2026-11-23T02:45:05Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), expected);
        }
    }
}

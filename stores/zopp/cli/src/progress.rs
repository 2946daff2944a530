//! How far a long command has come, on standard error, if that is a terminal.

use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

/// Fewer steps than this are over before anybody reads.
const MANY: usize = 50;
/// Between two lines: often enough to see it move.
const PERIOD: Duration = Duration::from_millis(100);

/// How far a command has come. The line is taken away when this is dropped.
pub struct Progress {
    what: &'static str,
    total: usize,
    shown: Option<Instant>,
    is_silent: bool,
}

impl Progress {
    /// Of so many steps; `what` is what is done, such as "Importing".
    pub fn new(what: &'static str, total: usize) -> Self {
        Self { what, total, shown: None, is_silent: total < MANY || !std::io::stderr().is_terminal() }
    }

    /// Shows that this number of steps is done.
    pub fn at(&mut self, done: usize) {
        if self.is_silent || self.shown.is_some_and(|shown| shown.elapsed() < PERIOD) {
            return;
        }
        self.shown = Some(Instant::now());
        // Nobody is helped by a command that fails because its progress cannot be shown.
        let _ = write!(std::io::stderr(), "\r{}", line(self.what, done, self.total));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let width = line(self.what, self.total, self.total).len();
            let _ = write!(std::io::stderr(), "\r{:width$}\r", "");
        }
    }
}

/// Equally long at each step, so that it covers the one before.
fn line(what: &str, done: usize, total: usize) -> String {
    let width = total.to_string().len();
    format!("{what}: {done:>width$} of {total}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cover_each_other() {
        assert_eq!(line("Importing", 7, 1000), "Importing:    7 of 1000");
        assert_eq!(line("Importing", 7, 1000).len(), line("Importing", 1000, 1000).len());
    }
}

//! The log of a test, so that the test can prove that a message is there and that a secret is not.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tracing::{Dispatch, level_filters::LevelFilter, subscriber::DefaultGuard};
use tracing_subscriber::fmt::MakeWriter;

/// Everything that the current thread logs while this value lives, at every level, of our code and of libraries.
///
/// Assumes that the code under test runs on the thread that called [`start`](Self::start). `#[tokio::test]` without arguments does that; a
/// runtime with several threads does not.
///
/// ```
/// let log = konverge_testkit::CapturedLog::start();
/// tracing::debug!(attempt = 2, "the source does not answer");
/// assert!(log.text().contains("the source does not answer") && !log.text().contains("hunter2"));
/// ```
#[must_use = "the log is captured only while this value lives"]
pub struct CapturedLog {
    lines: Lines,
    _default: DefaultGuard,
    _second: Dispatch,
}

impl CapturedLog {
    /// Begins to capture.
    pub fn start() -> Self {
        // While there is only one subscriber, tracing decides whether a log line is wanted by the subscriber of the thread that reaches the
        // line first. That may be a thread of another test, which has none, and the line would be off for this test, too. With two
        // subscribers, tracing asks both.
        let second = Dispatch::new(tracing::subscriber::NoSubscriber::new());
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::TRACE)
            .with_ansi(false)
            .with_writer(lines.clone())
            .finish();
        Self { lines, _default: tracing::subscriber::set_default(subscriber), _second: second }
    }

    /// Returns what was logged so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.lines.lock()).into_owned()
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn log() {
        tracing::trace!("a line that several tests reach");
    }

    #[test]
    fn a_line_that_a_thread_without_a_subscriber_reached_first_is_captured() {
        let log_of_test = CapturedLog::start();
        thread::spawn(log).join().unwrap();
        assert_eq!(log_of_test.text(), "", "another thread's lines are not this test's");
        log();
        assert!(log_of_test.text().contains("a line that several tests reach"), "{}", log_of_test.text());
    }
}

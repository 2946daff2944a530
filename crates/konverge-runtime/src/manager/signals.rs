//! The two signals that ask a process to end, and what is done about them.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::RunError;

/// SIGTERM and SIGINT. A program catches them once, as the first thing that it does, and keeps them to its end: a signal that comes while nobody
/// waits for one is kept, and one that comes after they were dropped has no effect at all.
///
/// A program that is the first process of its container does not get the kernel's own answer to a signal, which is to end it.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches both from here on. Needs a runtime with IO.
    pub fn catch() -> Result<Self, RunError> {
        let caught = |kind| signal(kind).map_err(RunError::Signals);
        Ok(Self { terminate: caught(SignalKind::terminate())?, interrupt: caught(SignalKind::interrupt())? })
    }

    /// Runs a task to its end, or drops it at the first signal and returns `None`.
    pub async fn until<T>(&mut self, task: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = task => Some(result),
            signal = self.next() => {
                tracing::info!(signal, "stopping");
                None
            }
        }
    }

    /// Runs a program to its end: the first signal begins its shutdown, and a second one drops it where it is.
    pub(super) async fn shut_down(
        mut self,
        shutdown: &CancellationToken,
        run: impl Future<Output = Result<(), RunError>>,
    ) -> Result<(), RunError> {
        let mut run = Box::pin(run);
        tokio::select! {
            result = &mut run => return result,
            signal = self.next() => {
                tracing::info!(signal, "shutting down");
                shutdown.cancel();
            }
        }
        tokio::select! {
            result = run => result,
            signal = self.next() => {
                tracing::warn!(signal, "second signal: stopping at once");
                Err(RunError::Aborted)
            }
        }
    }

    /// The next of them. Cancel safe.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A signal that ends no other test of this process, in place of SIGTERM, and one that nobody sends.
    fn harmless(kind: SignalKind) -> Signals {
        let caught = |kind| signal(kind).expect("a runtime with IO");
        Signals { terminate: caught(kind), interrupt: caught(SignalKind::window_change()) }
    }

    fn raise(signal: &str) {
        let number = std::process::id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &number]).status().expect("kill").success());
    }

    #[tokio::test]
    async fn a_signal_between_the_start_and_the_run_is_kept() {
        let mut signals = harmless(SignalKind::user_defined1());
        assert_eq!(signals.until(async { "started" }).await, Some("started"));
        raise("USR1");
        let shutdown = CancellationToken::new();
        let run = async {
            shutdown.cancelled().await;
            Ok(())
        };
        signals.shut_down(&shutdown, run).await.expect("the run ends");
    }

    #[tokio::test]
    async fn a_signal_drops_what_the_program_does_before_its_run() {
        let mut signals = harmless(SignalKind::user_defined2());
        raise("USR2");
        assert_eq!(signals.until(std::future::pending::<()>()).await, None);
    }
}

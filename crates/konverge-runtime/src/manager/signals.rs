//! The two signals that ask a process to end, and what is done about them.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::RunError;

/// The handlers of SIGTERM and SIGINT. A program creates them once, before anything else, and keeps them until it ends. A signal that arrives
/// while no task waits is kept. After the drop, signals have no effect.
///
/// The kernel does not end the first process of a container on a signal, so the program has to.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches both signals from here on. Needs a runtime with IO.
    pub fn catch() -> Result<Self, RunError> {
        let caught = |kind| signal(kind).map_err(RunError::Signals);
        Ok(Self { terminate: caught(SignalKind::terminate())?, interrupt: caught(SignalKind::interrupt())? })
    }

    /// Runs a task to completion, or drops it at the first signal and returns `None`.
    pub async fn until<T>(&mut self, task: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = task => Some(result),
            signal = self.next() => {
                tracing::info!(signal, "stopping");
                None
            }
        }
    }

    /// Runs a program to completion. The first signal begins its shutdown, and a second one drops it.
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

    /// Creates handlers of a signal that ends no other test of this process, in place of SIGTERM, and of an unused one.
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

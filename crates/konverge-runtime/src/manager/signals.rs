//! The two signals that ask a process to end, and what is done about them.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::RunError;

/// Runs a program to its end: the first signal begins its shutdown, and a second one drops it where it is.
pub(super) async fn run_until_signal(
    shutdown: &CancellationToken,
    run: impl Future<Output = Result<(), RunError>>,
) -> Result<(), RunError> {
    let mut signals = Signals::new().map_err(RunError::Signals)?;
    let mut run = Box::pin(run);
    tokio::select! {
        result = &mut run => return result,
        signal = signals.next() => {
            tracing::info!(signal, "shutting down");
            shutdown.cancel();
        }
    }
    tokio::select! {
        result = run => result,
        signal = signals.next() => {
            tracing::warn!(signal, "second signal: stopping at once");
            Err(RunError::Aborted)
        }
    }
}

/// Runs a task to its end, or drops it at the first signal and returns `None`. A program that is the first process of its container does not get
/// the kernel's own answer to a signal, which is to end it.
pub async fn until_signal<T>(task: impl Future<Output = T>) -> Result<Option<T>, RunError> {
    let mut signals = Signals::new().map_err(RunError::Signals)?;
    tokio::select! {
        result = task => Ok(Some(result)),
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            Ok(None)
        }
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next of them. Cancel safe.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

//! Being asked to end.

use std::{io, pin::pin};

use futures::future::select_all;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, `kill`, and the terminal's end. From the moment it is made, none of them ends the process by itself.
pub struct Signals(Vec<Signal>);

impl Signals {
    /// Begins to listen.
    pub fn listen() -> io::Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        Ok(Self(kinds.into_iter().map(signal).collect::<io::Result<_>>()?))
    }

    /// Waits for any of them.
    pub async fn any(&mut self) {
        let each = self.0.iter_mut().map(|signal| Box::pin(signal.recv()));
        pin!(select_all(each)).await;
    }
}

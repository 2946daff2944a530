//! Connections of probes and Prometheus: a few for each address, and none for ever. Anybody who reaches the port can connect, and must not keep others, or the
//! port of the clients, from new connections.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::{Instant, Sleep, sleep},
};

use crate::{
    guesses::network,
    metrics::Metrics,
    shares::{Share, Shares},
};

/// Under which all connections are counted together.
const ALL: &str = "all";
/// Connections of all.
const CONNECTIONS: u32 = 128;
/// Connections from one address.
const CONNECTIONS_PER_ADDRESS: u32 = 32;
/// How long a connection may take until its first byte.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// How long it may stay. A client that scrapes less often connects anew.
const LIFE: Duration = Duration::from_mins(2);
/// After an error of the system, such as that there are no more files.
const PAUSE: Duration = Duration::from_secs(1);

/// A listener that closes what is too much.
pub(super) struct Bounded {
    listener: TcpListener,
    open: Shares,
    metrics: Metrics,
}

/// A connection that ends in time.
pub(super) struct ProbeConnection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    spoke: bool,
    _shares: [Share; 2],
}

impl Bounded {
    /// Nothing is open yet.
    pub(super) fn new(listener: TcpListener, metrics: Metrics) -> Self {
        Self { listener, open: Shares::default(), metrics }
    }

    fn take(&self, stream: TcpStream, peer: SocketAddr) -> Option<ProbeConnection> {
        let of_address = self.open.take(&network(peer.ip()).to_string(), CONNECTIONS_PER_ADDRESS);
        let shares = of_address.and_then(|of_address| Some([of_address, self.open.take(ALL, CONNECTIONS)?]));
        let Some(shares) = shares else {
            self.metrics.connection_refused("--health-addr");
            return None;
        };
        Some(ProbeConnection { stream, end: Box::pin(sleep(FIRST_BYTE)), spoke: false, _shares: shares })
    }
}

impl Listener for Bounded {
    type Io = ProbeConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (ProbeConnection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    if let Some(connection) = self.take(stream, peer) {
                        return (connection, peer);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection for probes could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for ProbeConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before && !self.spoke {
            self.spoke = true;
            self.end.as_mut().reset(Instant::now() + LIFE);
        }
        read
    }
}

impl AsyncWrite for ProbeConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

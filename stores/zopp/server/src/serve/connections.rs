//! Connections: bounded in all and for each address, and none stays that says nothing at its beginning or does not finish its handshake.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, StreamExt, future};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep, timeout},
};
use tokio_rustls::server::TlsStream;
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::AbortOnDropHandle,
};
use tonic::transport::server::{Connected, TcpConnectInfo, TcpIncoming};

use super::tls::Tls;
use crate::{
    address::TrustedProxy,
    guesses::network,
    limits::Limits,
    metrics::{Counted, Metrics},
    shares::{Share, Shares},
};

/// A peer that has not sent its first byte by then is let go.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// A peer that has not finished its handshake by then is let go.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Under which all connections are counted together.
const ALL: &str = "all";

/// A connection that counts until it is closed.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// Until the first byte.
    deadline: Option<Pin<Box<Sleep>>>,
    end: CancellationToken,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    _shares: [Option<Share>; 2],
    _counted: Counted,
}

/// On each request: the connection that it came on.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// The other side.
    pub(super) tcp: TcpConnectInfo,
    /// Ends it.
    pub(super) end: CancellationToken,
}

/// A connection, in plain text or under TLS.
#[derive(Debug)]
pub(super) enum Wire {
    Plain(Box<Connection>),
    Tls(Box<TlsStream<Connection>>),
}

/// The connections that are taken, with their handshakes done. Those beyond a limit are closed at once, so a peer with many
/// connections does not keep others waiting.
pub(super) fn bounded(
    incoming: TcpIncoming,
    limits: Limits,
    trusted: Arc<[TrustedProxy]>,
    tls: Option<Arc<Tls>>,
    metrics: Metrics,
) -> impl Stream<Item = io::Result<Wire>> {
    let open = Shares::default();
    let of_handshakes = metrics.clone();
    incoming
        .filter_map(move |accepted| {
            let taken = match accepted {
                Ok(stream) => take(&open, stream, &limits, &trusted, &metrics).map(Ok),
                Err(error) => Some(Err(error)),
            };
            future::ready(taken)
        })
        .map(move |taken| wire(taken, tls.as_deref(), of_handshakes.clone()))
        // All that are taken may be in their handshake: a slow one keeps nobody waiting.
        .buffer_unordered(usize::try_from(limits.connections).unwrap_or(usize::MAX))
        .filter_map(future::ready)
}

/// A connection after its handshake, which is done in a task of its own.
fn wire(
    taken: io::Result<Connection>,
    tls: Option<&Tls>,
    metrics: Metrics,
) -> impl Future<Output = Option<io::Result<Wire>>> + use<> {
    let handshake = match (taken, tls) {
        (Err(error), _) => Err(Err(error)),
        (Ok(connection), None) => Err(Ok(Wire::Plain(Box::new(connection)))),
        (Ok(connection), Some(tls)) => {
            let accept = tls.acceptor().accept(connection);
            Ok(AbortOnDropHandle::new(tokio::spawn(timeout(HANDSHAKE, accept))))
        }
    };
    async move {
        match handshake {
            Err(ready) => Some(ready),
            Ok(handshake) => match handshake.await {
                Ok(Ok(Ok(stream))) => Some(Ok(Wire::Tls(Box::new(stream)))),
                failed => {
                    tracing::debug!(?failed, "a TLS handshake failed");
                    metrics.handshake_failed();
                    None
                }
            },
        }
    }
}

fn take(
    open: &Shares,
    stream: TcpStream,
    limits: &Limits,
    trusted: &[TrustedProxy],
    metrics: &Metrics,
) -> Option<Connection> {
    // A peer that is gone already has no address.
    let peer: IpAddr = stream.peer_addr().ok()?.ip().to_canonical();
    let of_address = if trusted.iter().any(|proxy| proxy.contains(peer)) {
        None
    } else {
        let Some(share) = open.take(&network(peer).to_string(), limits.connections_per_address) else {
            tracing::debug!(%peer, "a connection was refused (--max-connections-per-address)");
            metrics.connection_refused("--max-connections-per-address");
            return None;
        };
        Some(share)
    };
    let Some(of_all) = open.take(ALL, limits.connections) else {
        tracing::debug!(%peer, "a connection was refused (--max-connections)");
        metrics.connection_refused("--max-connections");
        return None;
    };
    let deadline = Some(Box::pin(sleep(FIRST_BYTE)));
    let end = CancellationToken::new();
    let ended = Box::pin(end.clone().cancelled_owned());
    Some(Connection {
        stream,
        deadline,
        end,
        ended,
        _shares: [of_address, Some(of_all)],
        _counted: metrics.connection(),
    })
}

impl Connected for Wire {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        let connection = match self {
            Self::Plain(connection) => connection,
            Self::Tls(stream) => stream.get_ref().0,
        };
        Peer { tcp: connection.stream.connect_info(), end: connection.end.clone() }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(connection) => Pin::new(connection).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(connection) => Pin::new(connection).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(connection) => Pin::new(connection).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(connection) => Pin::new(connection).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(connection) => Pin::new(connection).poll_write_vectored(context, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(connection) => connection.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.go_on(context)?;
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(result) => {
                if buffer.filled().len() > before {
                    self.deadline = None;
                }
                Poll::Ready(result)
            }
            Poll::Pending => {
                let overdue = self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(context).is_ready());
                if overdue { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { Poll::Pending }
            }
        }
    }
}

impl Connection {
    /// Fails once the connection is to end.
    fn go_on(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.ended.as_mut().poll(context).is_ready() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.go_on(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.go_on(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

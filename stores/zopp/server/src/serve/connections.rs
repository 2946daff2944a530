//! Connections: bounded in all and for each address, and none stays that says nothing at its beginning.

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
    time::{Sleep, sleep},
};
use tonic::transport::server::{Connected, TcpConnectInfo, TcpIncoming};

use crate::{
    address::TrustedProxy,
    guesses::network,
    limits::Limits,
    shares::{Share, Shares},
};

/// A peer that has not sent its first byte by then is let go.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// Under which all connections are counted together.
const ALL: &str = "all";

/// A connection that counts until it is closed.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// Until the first byte.
    deadline: Option<Pin<Box<Sleep>>>,
    _shares: [Option<Share>; 2],
}

/// The connections that are taken. Those beyond a limit are closed at once: whoever holds many does not keep others waiting.
pub(super) fn bounded(
    incoming: TcpIncoming,
    limits: Limits,
    trusted: Arc<[TrustedProxy]>,
) -> impl Stream<Item = io::Result<Connection>> {
    let open = Shares::default();
    incoming.filter_map(move |accepted| {
        let taken = match accepted {
            Ok(stream) => take(&open, stream, &limits, &trusted).map(Ok),
            Err(error) => Some(Err(error)),
        };
        future::ready(taken)
    })
}

fn take(open: &Shares, stream: TcpStream, limits: &Limits, trusted: &[TrustedProxy]) -> Option<Connection> {
    // A peer that is gone already has no address.
    let peer: IpAddr = stream.peer_addr().ok()?.ip().to_canonical();
    let of_address = if trusted.iter().any(|proxy| proxy.contains(peer)) {
        None
    } else {
        let Some(share) = open.take(&network(peer).to_string(), limits.connections_per_address) else {
            tracing::debug!(%peer, "a connection was refused (--max-connections-per-address)");
            return None;
        };
        Some(share)
    };
    let Some(of_all) = open.take(ALL, limits.connections) else {
        tracing::debug!(%peer, "a connection was refused (--max-connections)");
        return None;
    };
    let deadline = Some(Box::pin(sleep(FIRST_BYTE)));
    Some(Connection { stream, deadline, _shares: [of_address, Some(of_all)] })
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
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

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
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
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

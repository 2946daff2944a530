//! A TLS front for a server without TLS.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

use crate::tls::{self, HTTP_1_1, HTTP_2};

/// A name in the certificates of the test kit that no resolver knows. A client reaches it only through a proxy.
pub const ELSEWHERE: &str = "server.invalid";

/// A server that decrypts and forwards TLS connections. Dropping it closes it and its connections.
pub struct TlsFront {
    address: SocketAddr,
    authority: String,
    task: JoinHandle<()>,
}

impl TlsFront {
    /// Starts a TLS front for the server at this address, such as `127.0.0.1:50051`, which speaks HTTP/2 or HTTP/1.1.
    pub async fn start(server: &str, is_http_2: bool) -> io::Result<Self> {
        let protocol = if is_http_2 { HTTP_2 } else { HTTP_1_1 };
        let (tls, authority) = tls::server("konverge-tls-front", &[protocol]).map_err(io::Error::other)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = Arc::<str>::from(server);
        let task = tokio::spawn(async move {
            let mut running = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                running.spawn(pass_on(client, tls.clone(), Arc::clone(&server)));
                while running.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, authority, task })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the CA of its certificate, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass_on(client: TcpStream, tls: TlsAcceptor, server: Arc<str>) -> io::Result<()> {
    let mut client = tls.accept(client).await?;
    let mut server = TcpStream::connect(&*server).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

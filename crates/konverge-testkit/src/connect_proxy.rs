//! A forward proxy for tests.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// The version of SOCKS.
const SOCKS_5: u8 = 5;

/// The maximum size of the head of a CONNECT request.
const MAX_HEAD: usize = 8 * 1024;

/// An HTTP proxy with CONNECT, and a SOCKS 5 proxy on the same port. Dropping it closes it and its tunnels.
pub struct ConnectProxy {
    address: SocketAddr,
    tunnels: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl ConnectProxy {
    /// Starts a proxy on this machine that connects to the requested servers.
    pub async fn start() -> io::Result<Self> {
        Self::leading(None).await
    }

    /// Starts a proxy that connects to this server, such as `127.0.0.1:6443`, for every requested name, as if it knew the names of a private
    /// network.
    pub async fn start_before(server: &str) -> io::Result<Self> {
        Self::leading(Some(server.into())).await
    }

    async fn leading(server: Option<Arc<str>>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let tunnels = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&tunnels);
        let task = tokio::spawn(async move {
            let mut running = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                running.spawn(tunnel(client, server.clone(), Arc::clone(&count)));
                while running.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, tunnels, task })
    }

    /// Returns the address for `HTTPS_PROXY` and `proxy-url`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the address for SOCKS 5 clients, which send the names of servers.
    pub fn socks_url(&self) -> String {
        format!("socks5h://{}", self.address)
    }

    /// Returns the number of opened tunnels.
    pub fn tunnels(&self) -> usize {
        self.tunnels.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn tunnel(mut client: TcpStream, server: Option<Arc<str>>, tunnels: Arc<AtomicUsize>) -> io::Result<()> {
    let first = client.read_u8().await?;
    if first == SOCKS_5 {
        return socks_tunnel(client, server, tunnels).await;
    }
    let mut head = vec![first];
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let Some(named) = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()) else {
        return client.write_all(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n").await;
    };
    let Ok(mut server) = TcpStream::connect(server.as_deref().unwrap_or(named)).await else {
        return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n").await;
    };
    tunnels.fetch_add(1, Ordering::Relaxed);
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// Continues the handshake after the version byte of a SOCKS client. No password is needed.
async fn socks_tunnel(mut client: TcpStream, server: Option<Arc<str>>, tunnels: Arc<AtomicUsize>) -> io::Result<()> {
    let mut methods = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut methods).await?;
    client.write_all(&[SOCKS_5, 0]).await?;
    let [_version, _command, _reserved, kind] = client.read_u32().await?.to_be_bytes();
    let host = match kind {
        1 => Ipv4Addr::from(client.read_u32().await?).to_string(),
        3 => {
            let mut name = vec![0; client.read_u8().await?.into()];
            client.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
        _ => return Err(io::Error::other("an address of a kind that this proxy does not know")),
    };
    let named = format!("{host}:{}", client.read_u16().await?);
    let connected = TcpStream::connect(server.as_deref().unwrap_or(&named)).await;
    let answer = if connected.is_ok() { 0 } else { 4 };
    client.write_all(&[SOCKS_5, answer, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    let mut server = connected?;
    tunnels.fetch_add(1, Ordering::Relaxed);
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

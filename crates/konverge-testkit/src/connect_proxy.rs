//! A proxy that knows CONNECT, as companies have one before the internet.

use std::{
    io,
    net::SocketAddr,
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

/// The longest head of a CONNECT request.
const MAX_HEAD: usize = 8 * 1024;

/// An HTTP proxy that opens tunnels. Dropping it ends it and its tunnels.
pub struct ConnectProxy {
    address: SocketAddr,
    tunnels: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl ConnectProxy {
    /// Starts one on this machine, which leads to the servers that it is asked for.
    pub async fn start() -> io::Result<Self> {
        Self::leading(None).await
    }

    /// Starts one that leads to this server, such as `127.0.0.1:6443`, whatever name it is asked for, as one that knows the names of its network.
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

    /// Its address, as `HTTPS_PROXY` and `proxy-url` have it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many tunnels it has opened.
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
    let mut head = Vec::new();
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

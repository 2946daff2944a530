//! The way from the API server to Services. There are no nodes here, so nothing listens at the address of a Service. The API server
//! connects through the test kit instead, as it would through the Konnectivity server of a cluster whose nodes it cannot reach.
//!
//! The control plane may outlive the runtime of the test that started it, so threads do this, not tasks.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::json;

/// How long somebody may take to say where to.
const ASK_WITHIN: Duration = Duration::from_secs(10);

/// Which program of this machine stands for which Service. Dropping it ends the listening.
pub(super) struct Services {
    socket: PathBuf,
    routes: Routes,
    ended: Arc<AtomicBool>,
}

/// By the address of the Service in the cluster.
type Routes = Arc<Mutex<HashMap<String, SocketAddr>>>;

impl Services {
    /// Listens for the API server, and writes into `folder` what tells it so.
    pub(super) fn listen(folder: &Path) -> io::Result<Self> {
        // A socket in our own folder: an API server that is told of an address without TLS does not start.
        let socket = folder.join("services");
        let listener = UnixListener::bind(&socket)?;
        let connection = json!({
            "proxyProtocol": "HTTPConnect",
            "transport": { "uds": { "udsName": socket } },
        });
        let configuration = json!({
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{ "name": "cluster", "connection": connection }],
        });
        std::fs::write(Self::configuration(folder), configuration.to_string())?;
        let this = Self { socket, routes: Arc::default(), ended: Arc::default() };
        let (routes, ended) = (Arc::clone(&this.routes), Arc::clone(&this.ended));
        thread::Builder::new().name("services".to_owned()).spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let routes = Arc::clone(&routes);
                // A client that sends no valid CONNECT, or hangs up, ends only its own connection.
                thread::spawn(move || stream.and_then(|stream| lead(stream, &routes)));
            }
        })?;
        Ok(this)
    }

    /// Where the API server is told of us.
    pub(super) fn configuration(folder: &Path) -> PathBuf {
        folder.join("egress.json")
    }

    /// Routes connections for the Service with this address.
    pub(super) fn route(&self, service: &str, to: SocketAddr) {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner).insert(service.to_owned(), to);
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // It waits for a connection, and looks after each whether it is to end.
        drop(UnixStream::connect(&self.socket));
    }
}

/// Reads where to (`CONNECT 10.0.0.7:443 HTTP/1.1`), and passes on what is said, in both directions until both have ended.
fn lead(mut from: UnixStream, routes: &Routes) -> io::Result<()> {
    from.set_read_timeout(Some(ASK_WITHIN))?;
    let mut asked = BufReader::new(from.try_clone()?);
    let mut first = String::new();
    asked.read_line(&mut first)?;
    let mut line = String::new();
    while asked.read_line(&mut line)? > "\r\n".len() {
        line.clear();
    }
    let service = first.strip_prefix("CONNECT ").and_then(|rest| rest.split_once(':')).map(|(service, _)| service);
    let known = |service| routes.lock().unwrap_or_else(PoisonError::into_inner).get(service).copied();
    let to = service.and_then(known).map(TcpStream::connect);
    let Some(Ok(mut to)) = to else {
        return from.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
    };
    from.set_read_timeout(None)?;
    from.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let (mut said, mut there) = (from.try_clone()?, to.try_clone()?);
    let forth = thread::spawn(move || {
        // A connection that breaks has ended.
        drop(io::copy(&mut said, &mut there));
        drop(there.shutdown(Shutdown::Write));
    });
    drop(io::copy(&mut to, &mut from));
    drop(from.shutdown(Shutdown::Write));
    drop(forth.join());
    Ok(())
}

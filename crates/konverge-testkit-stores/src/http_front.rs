//! A reverse proxy that breaks requests and answers as planned.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, sleep},
};

/// A proxy without TLS before one server. Dropping it ends it and its connections.
///
/// Requests pass unchanged, except for those that the plan of [`HttpFront::plan`] names.
pub struct HttpFront {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

/// The fault for one request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Fault {
    /// The connection breaks before the server gets the request.
    DropRequest,
    /// The server answers, and the connection breaks before the client gets anything of it.
    DropReply,
    /// The server answers, and the client never gets anything of it: the moment to kill the client.
    HoldReply,
    /// The request reaches the server that much later.
    Delay(Duration),
    /// The server never gets the request, and the client never gets an answer.
    Hang,
    /// The client gets this answer, and the server never gets the request.
    Answer {
        /// The status.
        status: u16,
        /// Headers.
        headers: Vec<(&'static str, String)>,
        /// The body.
        body: String,
    },
    /// The client gets that many bytes of the server's answer, as if that were all.
    Truncate(usize),
}

/// One request, as the plan and the journal see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// Its number, from 0.
    pub number: usize,
    /// Its method.
    pub method: Method,
    /// Its path, with its query.
    pub path: String,
    /// Its body, as far as the proxy has read it: empty in the plan.
    pub body: Bytes,
    /// The server's status. `None` if the server has not answered.
    pub status: Option<u16>,
    /// When the request arrived.
    pub at: Instant,
    /// When the server had answered.
    pub answered: Option<Instant>,
}

type Plan = Box<dyn Fn(&Seen) -> Option<Fault> + Send + Sync>;

struct Shared {
    upstream: String,
    client: Client<HttpConnector, Full<Bytes>>,
    plan: Mutex<Plan>,
    journal: Mutex<Vec<Seen>>,
}

impl Fault {
    /// The 404 page of a proxy.
    pub fn html_404() -> Self {
        let headers = vec![("content-type", "text/html".to_owned())];
        Self::Answer { status: 404, headers, body: "<html><body>404 Not Found</body></html>".to_owned() }
    }

    /// A 429 that asks to be left alone for that many seconds.
    pub fn too_many_requests(seconds: u32) -> Self {
        let headers = vec![("retry-after", seconds.to_string())];
        Self::Answer { status: 429, headers, body: String::new() }
    }
}

impl HttpFront {
    /// Starts a proxy before this server, such as `http://127.0.0.1:8200`.
    pub async fn start(upstream: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: upstream.trim_end_matches('/').to_owned(),
            client: Client::builder(TokioExecutor::new()).build_http(),
            plan: Mutex::new(Box::new(|_| None)),
            journal: Mutex::default(),
        });
        let serves = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&serves);
                let service = service_fn(move |request| Arc::clone(&shared).pass(request));
                // An error of the service breaks the connection, which is what some faults are.
                connections
                    .spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, shared, task })
    }

    /// Where it answers.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on each request has the fault that this plan gives it.
    pub fn plan(&self, plan: impl Fn(&Seen) -> Option<Fault> + Send + Sync + 'static) {
        *self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(plan);
    }

    /// How many requests there were so far.
    pub fn count(&self) -> usize {
        self.shared.journal.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The requests from this number on.
    pub fn since(&self, number: usize) -> Vec<Seen> {
        let journal = self.shared.journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.get(number..).unwrap_or_default().to_vec()
    }

    /// All requests so far.
    pub fn journal(&self) -> Vec<Seen> {
        self.shared.journal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for HttpFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn note(&self, request: &Request<Incoming>) -> Seen {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        let (number, method) = (journal.len(), request.method().clone());
        let at = Instant::now();
        let seen = Seen { number, method, path, body: Bytes::new(), status: None, at, answered: None };
        journal.push(seen.clone());
        seen
    }

    /// Changes the entry of a request in the journal.
    fn change(&self, seen: &Seen, change: impl FnOnce(&mut Seen)) {
        if let Some(entry) = self.journal.lock().unwrap_or_else(PoisonError::into_inner).get_mut(seen.number) {
            change(entry);
        }
    }

    async fn pass(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
        let seen = self.note(&request);
        let fault = self.plan.lock().unwrap_or_else(PoisonError::into_inner)(&seen);
        let (mut head, body) = request.into_parts();
        match &fault {
            Some(Fault::DropRequest) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Delay(delay)) => sleep(*delay).await,
            Some(Fault::Answer { status, headers, body: text }) => {
                let mut answer = Response::new(Full::from(text.clone()));
                *answer.status_mut() = StatusCode::from_u16(*status).map_err(io::Error::other)?;
                for (name, value) in headers {
                    answer.headers_mut().insert(*name, HeaderValue::from_str(value).map_err(io::Error::other)?);
                }
                let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                self.change(&seen, |entry| entry.body = body);
                return Ok(answer);
            }
            _ => {}
        }
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        self.change(&seen, |entry| entry.body = body.clone());
        head.uri = format!("{}{}", self.upstream, seen.path).parse().map_err(io::Error::other)?;
        head.headers.remove(header::HOST);
        let answer =
            self.client.request(Request::from_parts(head, Full::from(body))).await.map_err(io::Error::other)?;
        let (mut head, body) = answer.into_parts();
        let mut body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        self.change(&seen, |entry| {
            entry.status = Some(head.status.as_u16());
            entry.answered = Some(Instant::now());
        });
        match fault {
            Some(Fault::DropReply) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Some(Fault::HoldReply) => std::future::pending().await,
            Some(Fault::Truncate(length)) => body.truncate(length),
            _ => {}
        }
        // The length is that of what is sent now.
        head.headers.remove(header::CONTENT_LENGTH);
        head.headers.remove(header::TRANSFER_ENCODING);
        Ok(Response::from_parts(head, Full::from(body)))
    }
}

//! A server outside the cluster, for tests of operators that keep it in sync: the test's own service, which fails when the test says so.

use std::{
    collections::HashMap,
    convert::Infallible,
    error::Error,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::RETRY_AFTER};
use http_body::Body;
use http_body_util::{Either, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tower::{Service, ServiceExt};

/// A service of the test, such as an `axum::Router`, on a port of this machine. It speaks HTTP/1.1 without TLS.
///
/// Dropping it closes the port.
pub struct OutsideServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct State {
    /// Calls that the service answered, by method.
    calls: HashMap<Method, usize>,
    next: Option<(Method, NextCall)>,
    away: Option<(StatusCode, &'static str)>,
}

/// A fault of the next call of a method.
#[derive(Clone, Copy, Debug)]
pub enum NextCall {
    /// The service answers, and the client gets 502 instead of that answer.
    LosesItsReply,
    /// The client gets 429 with this `Retry-After`, in whole seconds, and the service is not called.
    IsLimited(Duration),
}

impl OutsideServer {
    /// Serves at this address, such as `127.0.0.1:0` for any free port.
    pub async fn start<S, B>(address: &str, service: S) -> io::Result<Self>
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let state = Arc::<Mutex<State>>::default();
        let serving = tokio::spawn(accept(listener, service, Arc::clone(&state)));
        Ok(Self { address, state, _serving: AbortOnDropHandle::new(serving) })
    }

    /// Returns the address with its scheme, such as `http://127.0.0.1:4321`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets the next call of this method fail.
    pub fn fail(&self, method: Method, how: NextCall) {
        lock(&self.state).next = Some((method, how));
    }

    /// Answers each call with this status and text from now on, as a proxy does whose server is away.
    pub fn go_away(&self, status: StatusCode, text: &'static str) {
        lock(&self.state).away = Some((status, text));
    }

    /// Serves again.
    pub fn come_back(&self) {
        lock(&self.state).away = None;
    }

    /// Returns how many calls of this method the service answered.
    pub fn calls(&self, method: &Method) -> usize {
        lock(&self.state).calls.get(method).copied().unwrap_or_default()
    }
}

/// A panic of a test does not hide what it panicked about behind a poisoned lock.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept<S, B>(listener: TcpListener, service: S, state: Arc<Mutex<State>>)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (service, state) = (service.clone(), Arc::clone(&state));
        connections.spawn(async move {
            let service = service_fn(move |request| serve(Arc::clone(&state), service.clone(), request));
            // The client decides how a connection ends.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve<S, B>(
    state: Arc<Mutex<State>>,
    service: S,
    request: Request<Incoming>,
) -> Result<Response<Either<B, Full<Bytes>>>, Infallible>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes>,
{
    let method = request.method().clone();
    let fault = {
        let mut state = lock(&state);
        if let Some((status, text)) = state.away {
            return Ok(answer(status, text));
        }
        let fault = state.next.take_if(|(of, _)| *of == method).map(|(_, fault)| fault);
        if let Some(NextCall::IsLimited(wait)) = fault {
            let mut refusal = answer(StatusCode::TOO_MANY_REQUESTS, "");
            refusal.headers_mut().insert(RETRY_AFTER, wait.as_secs().into());
            return Ok(refusal);
        }
        *state.calls.entry(method).or_default() += 1;
        fault
    };
    let response = service.oneshot(request).await?;
    Ok(match fault {
        Some(NextCall::LosesItsReply) => answer(StatusCode::BAD_GATEWAY, ""),
        _ => response.map(Either::Left),
    })
}

fn answer<B>(status: StatusCode, text: &'static str) -> Response<Either<B, Full<Bytes>>> {
    let mut response = Response::new(Either::Right(Full::from(text)));
    *response.status_mut() = status;
    response
}

//! A server that lies: the real server with its database behind a proxy that alters answers by plan.
//!
//! Requests pass unaltered, so their signatures stay valid: this is what a server can do that has been taken over, or anybody who can
//! write its database.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code, Status,
    body::Body,
    server::NamedService,
    transport::{Channel, Endpoint, Server},
};
use tower_service::Service;

/// A compression flag and the length of the message.
const FRAME_HEADER: usize = 5;

type Request = http::Request<Body>;
type Answer = http::Response<Body>;
type Lie = Arc<dyn Fn(&[u8], Result<Bytes, Status>) -> Result<Vec<u8>, Status> + Send + Sync>;

/// A proxy in front of a real server. Tells the truth until [`LyingServer::lie`] is called. Clones share the plan. It ends with the
/// runtime that it was started on.
#[derive(Clone)]
pub struct LyingServer {
    address: SocketAddr,
    plan: Arc<Plan>,
}

/// A call as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenCall {
    /// For example `/zopp.ZoppService/ListSecrets`.
    pub path: String,
    /// Whether it carried a signature.
    pub signed: bool,
    /// Whether the signature was over the request too, and not over the clock alone.
    pub signed_request: bool,
}

#[derive(Default)]
struct Plan {
    lies: Mutex<HashMap<&'static str, Lie>>,
    seen: Mutex<Vec<SeenCall>>,
}

impl LyingServer {
    /// Starts a proxy on a free port, in front of the server at `upstream` (`http://…`). Must be called within a tokio runtime.
    pub async fn start(upstream: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let channel = Endpoint::from_shared(upstream.to_owned())?.connect_lazy();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = Self { address: listener.local_addr()?, plan: Arc::default() };
        let proxy = Proxy { upstream: channel, plan: Arc::clone(&server.plan) };
        let serving = Server::builder()
            .add_service(Contract(proxy.clone()))
            .add_service(OwnCalls(proxy.clone()))
            .add_service(OwnSecrets(proxy))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        Ok(server)
    }

    /// Returns its address, `http://…`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on, the call at `path` is answered with what `lie` makes of the request and of the real answer.
    pub fn lie<Q, A, F>(&self, path: &'static str, lie: F)
    where
        Q: Message + Default,
        A: Message + Default,
        F: Fn(Q, Result<A, Status>) -> Result<A, Status> + Send + Sync + 'static,
    {
        let lie = move |request: &[u8], answer: Result<Bytes, Status>| {
            let garbage = |error: prost::DecodeError| Status::internal(error.to_string());
            let request = Q::decode(request).map_err(garbage)?;
            let answer = answer.and_then(|bytes| A::decode(bytes).map_err(garbage));
            lie(request, answer).map(|answer| answer.encode_to_vec())
        };
        locked(&self.plan.lies).insert(path, Arc::new(lie));
    }

    /// From now on, the call at `path` is answered truthfully.
    pub fn tell_the_truth(&self, path: &'static str) {
        locked(&self.plan.lies).remove(path);
    }

    /// Returns the calls since the last time.
    pub fn take_seen(&self) -> Vec<SeenCall> {
        std::mem::take(&mut locked(&self.plan.seen))
    }
}

/// Under the name of the contract's service.
#[derive(Clone)]
struct Contract(Proxy);

/// Under the name of the service with our own calls for identities.
#[derive(Clone)]
struct OwnCalls(Proxy);

/// Under the name of the service with our own calls for environments.
#[derive(Clone)]
struct OwnSecrets(Proxy);

#[derive(Clone)]
struct Proxy {
    upstream: Channel,
    plan: Arc<Plan>,
}

macro_rules! service {
    ($type:ident, $name:literal) => {
        impl NamedService for $type {
            const NAME: &'static str = $name;
        }

        impl Service<Request> for $type {
            type Response = Answer;
            type Error = Infallible;
            type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: Request) -> Self::Future {
                let proxy = self.0.clone();
                Box::pin(async move { Ok(proxy.answer(request).await.unwrap_or_else(Status::into_http)) })
            }
        }
    };
}

service!(Contract, "zopp.ZoppService");
service!(OwnCalls, "konverge.zopp.v1.Identity");
service!(OwnSecrets, "konverge.zopp.secrets.v1.Secrets");

impl Proxy {
    async fn answer(&self, request: Request) -> Result<Answer, Status> {
        let path = request.uri().path().to_owned();
        let headers = request.headers();
        let (signed, signed_request) = (headers.contains_key("signature"), headers.contains_key("request-hash"));
        let seen = SeenCall { path, signed, signed_request };
        let lie = locked(&self.plan.lies).get(seen.path.as_str()).cloned();
        locked(&self.plan.seen).push(seen);

        let Some(lie) = lie else {
            return self.forward(request).await;
        };
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let message = body.slice(FRAME_HEADER.min(body.len())..);
        let truth = self.forward(http::Request::from_parts(head, Body::new(Full::new(body)))).await?;
        let told = lie(&message, message_of(truth).await)?;
        Ok(framed(&told))
    }

    async fn forward(&self, request: Request) -> Result<Answer, Status> {
        let unavailable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        let mut upstream = self.upstream.clone();
        std::future::poll_fn(|context| upstream.poll_ready(context)).await.map_err(unavailable)?;
        upstream.call(request).await.map_err(unavailable)
    }
}

/// The message of a unary answer, or its status.
async fn message_of(answer: Answer) -> Result<Bytes, Status> {
    let (head, body) = answer.into_parts();
    let refused =
        |headers: &http::HeaderMap| Status::from_header_map(headers).filter(|status| status.code() != Code::Ok);
    if let Some(status) = refused(&head.headers) {
        return Err(status);
    }
    let collected = body.collect().await?;
    if let Some(status) = collected.trailers().and_then(refused) {
        return Err(status);
    }
    let bytes = collected.to_bytes();
    Ok(bytes.slice(FRAME_HEADER.min(bytes.len())..))
}

fn framed(message: &[u8]) -> Answer {
    let mut frame = BytesMut::with_capacity(FRAME_HEADER + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    let body = Full::new(frame.freeze()).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut answer = http::Response::new(Body::new(body));
    answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
    answer
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

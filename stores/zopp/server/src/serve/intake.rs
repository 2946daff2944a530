//! The admission of requests: each takes a share of the [`Memory`] before anything is known of its caller, and gives it back once its answer is taken.
//!
//! A stream gives all back when it opens. A request that does not arrive in time ends.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use futures::future::BoxFuture;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::{Status, transport::server::TcpConnectInfo};
use tower::{Layer, Service};

use super::connections::Peer;
use crate::{
    address::Addresses,
    guesses::network,
    limits::Reached,
    memory::{Charge, Memory, PAUSE},
    pieces::{Handed, Pieces},
    shares::{Share, Shares},
    status::exhausted,
    validate::{largest_request, too_large},
};

/// The memory of a header besides its name and its value.
const HEADER: usize = 32;
/// The bytes before a message, in which gRPC tells its length.
const FRAME_HEADER: usize = 5;
/// By then a request has arrived. The largest one needs 270 KiB a second.
const ARRIVAL: Duration = Duration::from_secs(30);

/// The calls whose answers are streams. They count themselves, or are counted here ([`HEALTH_WATCHES`]).
const STREAMS: [&str; 2] = ["/zopp.ZoppService/WatchSecrets", HEALTH_WATCH];
/// The stream that anybody may open.
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
/// How many of them an address may have open.
const HEALTH_WATCHES: u32 = 16;

/// The admission of requests, before anything is known of their callers. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Intake {
    addresses: Addresses,
    memory: Memory,
    health_watches: Shares,
}

impl Intake {
    /// Nothing is taken yet.
    pub(super) fn new(addresses: Addresses, memory: Memory) -> Self {
        Self { addresses, memory, health_watches: Shares::default() }
    }

    /// A place for a stream that anybody may open.
    fn health_watch(&self, address: Option<IpAddr>) -> Result<Share, Reached> {
        let address = address.map_or_else(String::new, |address| network(address).to_string());
        let what = "watches of the health by an address";
        let reached = Reached { what, limit: HEALTH_WATCHES, flag: "of this build" };
        self.health_watches.take(&address, HEALTH_WATCHES).ok_or(reached)
    }
}

impl<S> Layer<S> for Intake {
    type Service = Charged<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Charged { inner, intake: self.clone() }
    }
}

/// A service whose requests are charged.
#[derive(Debug, Clone)]
pub(super) struct Charged<S> {
    inner: S,
    intake: Intake,
}

impl<S, B, A> Service<http::Request<B>> for Charged<S>
where
    S: Service<http::Request<ChargedBody<B>>, Response = http::Response<A>>,
    S::Future: Send + 'static,
    A: Default + Send + 'static,
{
    type Response = http::Response<AnswerBody<A>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        let peer = request.extensions().get::<Peer>().cloned();
        let connection = peer.as_ref().map(|peer| peer.end.clone()).unwrap_or_default();
        let tcp = peer.map(|peer| peer.tcp);
        let peer = tcp.as_ref().and_then(TcpConnectInfo::remote_addr);
        // Where tonic looks for the address of the peer.
        if let Some(tcp) = tcp {
            request.extensions_mut().insert(tcp);
        }
        let address = peer.map(|peer| self.intake.addresses.client(peer.ip().to_canonical(), request.headers()));
        let is_watch = request.uri().path() == HEALTH_WATCH;
        let admitted = self.intake.memory.admit(address, size(request.headers())).and_then(|charge| {
            let watch = is_watch.then(|| self.intake.health_watch(address)).transpose()?;
            Ok((Arc::new(charge), watch))
        });
        let (charge, watch) = match admitted {
            Ok(admitted) => admitted,
            Err(reached) => {
                let refused = exhausted(&reached, Some(PAUSE)).into_http();
                return Box::pin(async { Ok(refused.map(AnswerBody::uncharged)) });
            }
        };
        let is_stream = STREAMS.contains(&request.uri().path());
        request.extensions_mut().insert(Arc::clone(&charge));
        let of_body = Arc::clone(&charge);
        let most = largest_request(request.uri().path());
        let charged = request.map(|body| ChargedBody {
            body,
            charge: of_body,
            most,
            came: 0,
            deadline: Instant::now() + ARRIVAL,
            late: None,
        });
        let answer = self.inner.call(charged);
        Box::pin(async move {
            let mut answer = answer.await?;
            if is_stream {
                return Ok(answer.map(|body| AnswerBody { _watch: watch, ..AnswerBody::uncharged(body) }));
            }
            charge.answered(&connection);
            let pieces = answer.extensions_mut().remove::<Handed>().and_then(|handed| handed.accept());
            Ok(answer.map(|body| AnswerBody { charge: Some(charge), pieces, ..AnswerBody::uncharged(body) }))
        })
    }
}

/// An answer on its way. Its bytes are charged until the last of them is gone.
#[derive(Debug)]
pub(super) struct AnswerBody<A> {
    body: A,
    /// None for a stream.
    charge: Option<Arc<Charge>>,
    /// They follow the first bytes.
    pieces: Option<Pieces>,
    has_begun: bool,
    _watch: Option<Share>,
}

/// The bytes of an answer, wherever they wait.
struct ChargedBytes {
    bytes: Bytes,
    _charge: Arc<Charge>,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<A> AnswerBody<A> {
    fn uncharged(body: A) -> Self {
        Self { body, charge: None, pieces: None, has_begun: false, _watch: None }
    }

    /// The next bytes of the answer, charged.
    fn charged(&mut self, bytes: Bytes) -> Bytes {
        let Some(charge) = &self.charge else { return bytes };
        let bytes = match &self.pieces {
            // The entries wait as rows.
            Some(pieces) if !self.has_begun => pieces.announce(bytes),
            Some(_) => bytes,
            None => {
                // It is encoded, and so in memory once from now on.
                charge.shrink_to(bytes.len());
                bytes
            }
        };
        self.has_begun = true;
        Bytes::from_owner(ChargedBytes { bytes, _charge: Arc::clone(charge) })
    }
}

impl<A> Body for AnswerBody<A>
where
    A: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = A::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, A::Error>>> {
        let piece = if self.has_begun { self.pieces.as_mut().and_then(Pieces::next) } else { None };
        if let Some(piece) = piece {
            return Poll::Ready(Some(Ok(Frame::data(self.charged(piece)))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| self.charged(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// A request's message on its way.
#[derive(Debug)]
pub(super) struct ChargedBody<B> {
    body: B,
    charge: Arc<Charge>,
    /// The message has no more bytes.
    most: Option<usize>,
    came: usize,
    deadline: Instant,
    /// Made for a request that does not arrive at once.
    late: Option<Pin<Box<Sleep>>>,
}

impl<B> Body for ChargedBody<B>
where
    B: Body + Unpin,
    B::Error: Into<tonic::codegen::StdError>,
{
    type Data = B::Data;
    type Error = tonic::codegen::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Buf::remaining);
                self.came = self.came.saturating_add(bytes);
                if let Some(most) = self.most
                    && self.came > most + FRAME_HEADER
                {
                    return Poll::Ready(Some(Err(too_large(most).into())));
                }
                let added = self.charge.add(u32::try_from(bytes).unwrap_or(u32::MAX));
                Poll::Ready(Some(added.map(|()| frame).map_err(|reached| exhausted(&reached, Some(PAUSE)).into())))
            }
            Poll::Ready(other) => Poll::Ready(other.map(|frame| frame.map_err(Into::into))),
            Poll::Pending => {
                let deadline = self.deadline;
                let late = self.late.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
                late.as_mut().poll(context).map(|()| Some(Err(too_late().into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// The memory of headers.
fn size(headers: &http::HeaderMap) -> u32 {
    let size = headers.iter().map(|(name, value)| HEADER + name.as_str().len() + value.len()).sum::<usize>();
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn too_late() -> Status {
    Status::deadline_exceeded(format!("the request did not arrive within {} s", ARRIVAL.as_secs()))
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{limits::Limits, memory::BASE};

    fn memory() -> Memory {
        let [request_bytes, request_bytes_per_address, answer_bytes] = [10 * BASE, 3 * BASE, 10 * BASE];
        Memory::new(&Limits { request_bytes, request_bytes_per_address, answer_bytes, ..Limits::default() })
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[tokio::test]
    async fn an_answer_is_charged_until_its_last_byte_is_gone() {
        let memory = memory();
        let charge = Arc::new(memory.admit(Some(address(1)), 0).unwrap());
        charge.reserve(u64::from(4 * BASE)).await.unwrap();
        charge.answered(&CancellationToken::new());
        let message = Bytes::from(vec![1; 2 * BASE as usize]);
        let mut body = AnswerBody { charge: Some(charge), ..AnswerBody::uncharged(http_body_util::Full::new(message)) };
        let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let mut bytes = frame.unwrap().unwrap().into_data().unwrap();
        assert_eq!(memory.in_use().1, 2 * BASE, "it is encoded");
        drop(body);
        let rest = bytes.split_off(10);
        drop(bytes);
        assert_eq!(memory.in_use().1, 2 * BASE);
        drop(rest);
        assert_eq!(memory.in_use(), (0, 0, 0));
    }

    #[tokio::test]
    async fn the_pieces_of_a_list_are_charged_until_the_last_of_them_is_gone() {
        let memory = memory();
        let secret = |number: usize| konverge_zopp_proto::Secret {
            key: number.to_string(),
            ciphertext: vec![1; BASE as usize],
            ..Default::default()
        };
        let mut list = konverge_zopp_proto::SecretList { secrets: (0..9).map(secret).collect(), version: 1 };
        let whole = prost::Message::encode_to_vec(&list);
        let pieces = Pieces::take(&mut list);
        let charge = Arc::new(memory.admit(Some(address(1)), 0).unwrap());
        charge.reserve(u64::from(4 * BASE)).await.unwrap();
        charge.answered(&CancellationToken::new());
        let head = prost::Message::encode_to_vec(&list);
        let first = [&[0, 0, 0, 0, u8::try_from(head.len()).unwrap()], &head[..]].concat();
        let body = http_body_util::Full::new(Bytes::from(first));
        let mut body = AnswerBody { charge: Some(charge), pieces, ..AnswerBody::uncharged(body) };
        let mut sent = Vec::new();
        while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            sent.push(frame.unwrap().into_data().unwrap());
            assert_eq!(memory.in_use().1, 4 * BASE);
        }
        let received = sent.concat();
        assert!(sent.len() > 2 && received.len() == 5 + whole.len(), "{} {}", sent.len(), received.len());
        assert_eq!(received[1..5], u32::try_from(whole.len()).unwrap().to_be_bytes());
        drop(body);
        let end = sent.pop();
        drop(sent);
        assert_eq!(memory.in_use().1, 4 * BASE);
        drop(end);
        assert_eq!(memory.in_use(), (0, 0, 0));
    }

    #[test]
    fn each_header_counts_with_its_name_and_its_value() {
        let mut headers = http::HeaderMap::new();
        headers.insert("name", "value".parse().unwrap());
        headers.append("name", "other".parse().unwrap());
        assert_eq!(size(&headers), 82);
    }

    /// The message of a client that sends nothing.
    struct Silence;

    impl Body for Silence {
        type Data = bytes::Bytes;
        type Error = Status;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<bytes::Bytes>, Status>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_arrive_ends() {
        let charge = Arc::new(memory().admit(Some(address(1)), 0).unwrap());
        let began = Instant::now();
        let mut body =
            ChargedBody { body: Silence, charge, most: None, came: 0, deadline: began + ARRIVAL, late: None };
        let end = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let error = end.expect("an end with a word").unwrap_err();
        assert_eq!(error.downcast_ref::<Status>().unwrap().code(), tonic::Code::DeadlineExceeded);
        assert_eq!(began.elapsed(), ARRIVAL);
    }
}

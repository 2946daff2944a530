//! How much memory requests and their answers take: bounded in all and for each address, before anything is known of their callers.
//!
//! A request counts with a base and with its bytes, as they arrive. Its answer counts until the client took it, wherever the bytes wait; a large one
//! counts before it is read from the database. A stream gives all back when it opens. A request that does not arrive in time ends, and so does a
//! connection on which an answer is not taken in time.

use std::{
    collections::HashMap,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use futures::future::BoxFuture;
use http_body::{Body, Frame};
use tokio::{
    sync::Notify,
    time::{Instant, MissedTickBehavior, Sleep, interval, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, transport::server::TcpConnectInfo};
use tower::{Layer, Service};

use super::connections::Peer;
use crate::{
    address::Addresses,
    guesses::network,
    limits::{Limits, Reached},
    metrics::Metrics,
    shares::{Share, Shares},
    status::exhausted,
    validate::{largest_request, too_large},
};

/// The memory of a request besides its message, and of an answer of half the size.
const BASE: u32 = 8 * 1024;
/// The bytes before a message, in which gRPC tells its length.
const FRAME_HEADER: usize = 5;
/// By then a request has arrived. The largest one needs 270 KiB a second.
const ARRIVAL: Duration = Duration::from_secs(30);
/// By then a client took its answer. The largest one of the default limits needs 270 KiB a second.
const TAKING: Duration = Duration::from_secs(30);
/// How often late clients are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a large answer waits for room.
const PATIENCE: Duration = Duration::from_secs(10);
/// When a client may try again, in seconds.
const PAUSE: i64 = 1;

/// The calls whose answers are streams. They count themselves, or are counted here ([`HEALTH_WATCHES`]).
const STREAMS: [&str; 2] = ["/zopp.ZoppService/WatchSecrets", HEALTH_WATCH];
/// The stream that anybody may open.
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
/// How many of them an address may have open.
const HEALTH_WATCHES: u32 = 16;

/// The memory of all requests. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Intake {
    addresses: Addresses,
    requests: Room,
    answers: Room,
    taken: Arc<Mutex<Taken>>,
    /// Told when something is given back.
    freed: Arc<Notify>,
    health_watches: Shares,
}

/// So many bytes, and how to say that there are no more.
#[derive(Debug, Clone, Copy)]
struct Room {
    all: Reached,
    of_address: Reached,
}

/// The bytes that are taken.
#[derive(Debug, Default)]
struct Taken {
    requests: Sums,
    answers: Sums,
    /// Large answers to one address are made one after the other.
    queues: HashMap<Option<IpAddr>, Arc<tokio::sync::Mutex<()>>>,
    /// The answers that clients have not taken yet, by a number of their own.
    on_the_way: HashMap<u64, Answer>,
    numbers: u64,
}

#[derive(Debug, Default)]
struct Sums {
    all: u32,
    /// By the addresses that took any. A request without an address counts among all only.
    by_address: HashMap<IpAddr, u32>,
}

/// An answer on its way.
#[derive(Debug)]
struct Answer {
    late: Instant,
    /// Ends the connection.
    connection: CancellationToken,
}

/// The bytes of one request and its answer. Given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    intake: Intake,
    address: Option<IpAddr>,
    request: Mutex<u32>,
    answer: Mutex<u32>,
    number: Mutex<Option<u64>>,
}

impl Sums {
    /// Takes more, unless there is no room for it.
    fn add(&mut self, room: &Room, address: Option<IpAddr>, more: u32) -> Result<(), Reached> {
        let all = self.all.saturating_add(more);
        if all > room.all.limit {
            return Err(room.all);
        }
        if let Some(address) = address {
            let own = self.by_address.get(&address).copied().unwrap_or_default().saturating_add(more);
            if own > room.of_address.limit {
                return Err(room.of_address);
            }
            self.by_address.insert(address, own);
        }
        self.all = all;
        Ok(())
    }

    fn give_back(&mut self, address: Option<IpAddr>, less: u32) {
        self.all -= less;
        if let Some(address) = address
            && let Some(own) = self.by_address.get_mut(&address)
        {
            *own -= less;
            if *own == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

impl Intake {
    /// Nothing is taken yet.
    pub(super) fn new(addresses: Addresses, limits: &Limits) -> Self {
        let room = |all: (&'static str, u32, &'static str), of_address: (&'static str, u32, &'static str)| {
            let [all, of_address] = [all, of_address].map(|(what, limit, flag)| Reached { what, limit, flag });
            Room { all, of_address }
        };
        let [request, answer] = ["--max-request-bytes", "--max-answer-bytes"];
        Self {
            addresses,
            requests: room(
                ("bytes of all requests at once", limits.request_bytes, request),
                (
                    "bytes of requests of an address at once",
                    limits.request_bytes_per_address,
                    "--max-request-bytes-per-address",
                ),
            ),
            answers: room(
                ("bytes of all answers at once", limits.answer_bytes, answer),
                ("bytes of answers to an address at once, which are half of all,", limits.answer_bytes / 2, answer),
            ),
            taken: Arc::default(),
            freed: Arc::default(),
            health_watches: Shares::default(),
        }
    }

    /// Ends connections on which answers are not taken in time, until `stop`.
    pub(super) async fn end_late_connections(self, metrics: Metrics, stop: CancellationToken) {
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(look.tick()).await.is_some() {
            let now = Instant::now();
            for Answer { late, connection } in self.lock().on_the_way.values() {
                if *late <= now && !connection.is_cancelled() {
                    connection.cancel();
                    metrics.answer_not_taken();
                }
            }
        }
    }

    /// Lets a request in, unless there is no room for it.
    fn admit(&self, address: Option<IpAddr>) -> Result<Charge, Reached> {
        let charge = Charge {
            intake: self.clone(),
            address: address.map(network),
            request: Mutex::default(),
            answer: Mutex::default(),
            number: Mutex::default(),
        };
        charge.add(BASE)?;
        Ok(charge)
    }

    /// A place for a stream that anybody may open.
    fn health_watch(&self, address: Option<IpAddr>) -> Result<Share, Reached> {
        let address = address.map_or_else(String::new, |address| network(address).to_string());
        let what = "watches of the health by an address";
        let reached = Reached { what, limit: HEALTH_WATCHES, flag: "of this build" };
        self.health_watches.take(&address, HEALTH_WATCHES).ok_or(reached)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        lock(&self.taken)
    }
}

impl Charge {
    /// Takes more for the request, unless there is no room for it.
    fn add(&self, more: u32) -> Result<(), Reached> {
        self.intake.lock().requests.add(&self.intake.requests, self.address, more)?;
        *lock(&self.request) += more;
        Ok(())
    }

    /// Takes room for an answer of that size in all, unless there is no room for it. An answer that is larger than all the room takes all of it.
    fn raise(&self, bytes: u64) -> Result<(), Reached> {
        let Room { all, of_address } = self.intake.answers;
        let most = self.address.map_or(all.limit, |_| of_address.limit);
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX).min(most);
        let mut held = lock(&self.answer);
        let more = wanted.saturating_sub(*held);
        if more > 0 {
            self.intake.lock().answers.add(&self.intake.answers, self.address, more)?;
            *held += more;
        }
        Ok(())
    }

    /// Takes room for an answer that takes so much memory, and waits for it. A small one is covered by the base.
    pub(crate) async fn reserve(&self, bytes: u64) -> Result<(), Status> {
        if bytes <= u64::from(BASE) {
            return Ok(());
        }
        let queue = Arc::clone(self.intake.lock().queues.entry(self.address).or_default());
        let last = Mutex::new(self.intake.answers.of_address);
        let waited = timeout(PATIENCE, async {
            let _turn = queue.lock().await;
            loop {
                let freed = self.intake.freed.notified();
                tokio::pin!(freed);
                // Before the look: what is given back in between is heard.
                freed.as_mut().enable();
                let Err(reached) = self.raise(bytes) else { return };
                *lock(&last) = reached;
                freed.await;
            }
        });
        let waited = waited.await;
        let mut taken = self.intake.lock();
        // Ours, and the one of the map: nobody else waits.
        if Arc::strong_count(&queue) <= 2 {
            taken.queues.remove(&self.address);
        }
        drop(taken);
        waited.map_err(|_| exhausted(&lock(&last), Some(PAUSE)))
    }

    /// Takes what an answer of this encoded size takes beyond what was reserved, if there is room for it. It is in memory twice while it is encoded.
    pub(crate) fn cover(&self, encoded: usize) -> Result<(), Status> {
        let bytes = u64::try_from(encoded).unwrap_or(u64::MAX).saturating_mul(2);
        if bytes <= u64::from(BASE) {
            return Ok(());
        }
        self.raise(bytes).map_err(|reached| exhausted(&reached, Some(PAUSE)))
    }

    /// The answer takes so much from now on.
    fn shrink_to(&self, bytes: usize) {
        let mut held = lock(&self.answer);
        let less = held.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
        if less > 0 {
            *held -= less;
            self.intake.lock().answers.give_back(self.address, less);
            self.intake.freed.notify_waiters();
        }
    }

    /// From now on the client has to take its answer, or loses its connection.
    fn answered(&self, connection: &CancellationToken) {
        let mut taken = self.intake.lock();
        taken.numbers += 1;
        let number = taken.numbers;
        let answer = Answer { late: Instant::now() + TAKING, connection: connection.clone() };
        taken.on_the_way.insert(number, answer);
        drop(taken);
        *lock(&self.number) = Some(number);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let [request, answer] = [&self.request, &self.answer].map(|bytes| *lock(bytes));
        let mut taken = self.intake.lock();
        if let Some(number) = *lock(&self.number) {
            taken.on_the_way.remove(&number);
        }
        taken.requests.give_back(self.address, request);
        taken.answers.give_back(self.address, answer);
        drop(taken);
        if answer > 0 {
            self.intake.freed.notify_waiters();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held left sums that are still right: each step is complete or has not begun.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let admitted = self.intake.admit(address).and_then(|charge| {
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
            let answer = answer.await?;
            if is_stream {
                return Ok(answer.map(|body| AnswerBody { body, charge: None, _watch: watch }));
            }
            charge.answered(&connection);
            Ok(answer.map(|body| AnswerBody { body, charge: Some(charge), _watch: None }))
        })
    }
}

/// An answer on its way. Its bytes are charged until the last of them is gone.
#[derive(Debug)]
pub(super) struct AnswerBody<A> {
    body: A,
    /// None for a stream.
    charge: Option<Arc<Charge>>,
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
        Self { body, charge: None, _watch: None }
    }
}

impl<A> Body for AnswerBody<A>
where
    A: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = A::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, A::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let Some(charge) = &self.charge else { return Poll::Ready(frame) };
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|bytes| {
                    // It is encoded, and so in memory once from now on.
                    charge.shrink_to(bytes.len());
                    Bytes::from_owner(ChargedBytes { bytes, _charge: Arc::clone(charge) })
                })
            })
        }))
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

fn too_late() -> Status {
    Status::deadline_exceeded(format!("the request did not arrive within {} s", ARRIVAL.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intake(request_bytes: u32, request_bytes_per_address: u32) -> Intake {
        let answer_bytes = 10 * BASE;
        let limits = Limits { request_bytes, request_bytes_per_address, answer_bytes, ..Limits::default() };
        Intake::new(Addresses::new(&[]), &limits)
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn an_address_takes_its_share_and_gives_it_back() {
        let intake = intake(10 * BASE, 3 * BASE);
        let first = intake.admit(Some(address(1))).unwrap();
        first.add(BASE).unwrap();
        let second = intake.admit(Some(address(1))).unwrap();
        assert_eq!(second.add(1).unwrap_err().flag, "--max-request-bytes-per-address");
        assert_eq!(intake.admit(Some(address(1))).unwrap_err().flag, "--max-request-bytes-per-address");
        intake.admit(Some(address(2))).unwrap();
        drop(first);
        second.add(2 * BASE).unwrap();
        drop(second);
        let Taken { requests, .. } = &*intake.lock();
        assert!(
            requests.all == 0 && requests.by_address.is_empty(),
            "nothing stays of requests that ended: {requests:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_answer_waits_for_room_and_not_for_ever() {
        let intake = intake(10 * BASE, 4 * BASE);
        let charge = |last| intake.admit(Some(address(last))).unwrap();
        // An address may have half of all the room.
        let first = charge(1);
        first.reserve(u64::from(3 * BASE)).await.unwrap();
        let second = charge(1);
        {
            let waiting = second.reserve(u64::from(3 * BASE));
            tokio::pin!(waiting);
            assert!(futures::poll!(&mut waiting).is_pending());
            charge(2).reserve(u64::from(5 * BASE)).await.expect("others are not concerned");
            drop(first);
            waiting.await.expect("there is room now");
        }
        second.cover(BASE as usize * 2).expect("a little more than was reserved");
        assert!(second.cover(usize::MAX).is_ok(), "all of the room");

        let third = charge(1);
        let began = Instant::now();
        let refused = third.reserve(u64::MAX).await.unwrap_err();
        assert!(refused.message().contains("--max-answer-bytes"), "{refused}");
        assert_eq!(began.elapsed(), PATIENCE);
        third.cover(BASE as usize).unwrap_err();
        third.cover(BASE as usize / 2).expect("the base covers it");
        drop(second);
        third.reserve(u64::MAX).await.expect("one that is larger than the room has all of it");
        assert_eq!(intake.lock().answers.by_address[&address(1)], 5 * BASE);
        drop(third);
        let Taken { answers, queues, .. } = &*intake.lock();
        assert!(answers.all == 0 && answers.by_address.is_empty() && queues.is_empty(), "{answers:?} {queues:?}");
    }

    #[tokio::test]
    async fn an_answer_is_charged_until_its_last_byte_is_gone() {
        let intake = intake(10 * BASE, 4 * BASE);
        let charge = Arc::new(intake.admit(Some(address(1))).unwrap());
        charge.reserve(u64::from(4 * BASE)).await.unwrap();
        charge.answered(&CancellationToken::new());
        let message = Bytes::from(vec![1; 2 * BASE as usize]);
        let mut body = AnswerBody { charge: Some(charge), ..AnswerBody::uncharged(http_body_util::Full::new(message)) };
        let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let mut bytes = frame.unwrap().unwrap().into_data().unwrap();
        assert_eq!(intake.lock().answers.all, 2 * BASE, "it is encoded");
        drop(body);
        let rest = bytes.split_off(10);
        drop(bytes);
        assert_eq!(intake.lock().answers.all, 2 * BASE);
        drop(rest);
        let Taken { requests, answers, on_the_way, .. } = &*intake.lock();
        assert!(requests.all == 0 && answers.all == 0 && on_the_way.is_empty(), "{requests:?} {answers:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_take_its_answer_loses_its_connection() {
        let intake = intake(10 * BASE, 4 * BASE);
        let (metrics, stop) = (Metrics::new(), CancellationToken::new());
        tokio::spawn(intake.clone().end_late_connections(metrics.clone(), stop.clone()));
        let [quick, slow] = [(); 2].map(|()| (intake.admit(None).unwrap(), CancellationToken::new()));
        for (charge, connection) in [&quick, &slow] {
            charge.answered(connection);
        }
        let began = Instant::now();
        drop(quick.0);
        slow.1.cancelled().await;
        assert!(began.elapsed() >= TAKING && began.elapsed() <= TAKING + LOOK_EVERY, "{:?}", began.elapsed());
        assert!(!quick.1.is_cancelled(), "its answer was taken");
        assert!(metrics.text().unwrap().contains("zopp_server_answers_not_taken_total 1\n"));
        stop.cancel();
    }

    #[test]
    fn all_addresses_together_have_a_limit() {
        let intake = intake(3 * BASE, 2 * BASE);
        let held: Vec<_> = (0..3).map(|last| intake.admit(Some(address(last))).unwrap()).collect();
        assert_eq!(intake.admit(Some(address(9))).unwrap_err().flag, "--max-request-bytes");
        assert_eq!(intake.admit(None).unwrap_err().flag, "--max-request-bytes");
        drop(held);
        intake.admit(None).unwrap().add(2 * BASE).unwrap();
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
        let charge = Arc::new(intake(10 * BASE, 3 * BASE).admit(Some(address(1))).unwrap());
        let began = Instant::now();
        let mut body =
            ChargedBody { body: Silence, charge, most: None, came: 0, deadline: began + ARRIVAL, late: None };
        let end = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let error = end.expect("an end with a word").unwrap_err();
        assert_eq!(error.downcast_ref::<Status>().unwrap().code(), tonic::Code::DeadlineExceeded);
        assert_eq!(began.elapsed(), ARRIVAL);
    }
}

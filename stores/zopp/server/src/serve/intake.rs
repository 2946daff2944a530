//! How much memory requests take until they are answered: bounded in all and for each address, before anything is known of their callers.
//!
//! A request counts with a base and with its bytes, as they arrive. It gives them back once its answer is on its way, which for a stream is
//! when it opens. A request that does not arrive in time ends.

use std::{
    collections::HashMap,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use futures::future::BoxFuture;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::{Status, transport::server::TcpConnectInfo};
use tower::{Layer, Service};

use crate::{
    address::Addresses,
    guesses::network,
    limits::{Limits, Reached},
    status::exhausted,
};

/// The memory of a request besides its message.
const BASE: u32 = 8 * 1024;
/// By then a request has arrived. The largest one needs 270 KiB a second.
const ARRIVAL: Duration = Duration::from_secs(30);
/// When a client may try again, in seconds.
const PAUSE: i64 = 1;

/// The memory of all requests. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Intake {
    addresses: Addresses,
    bytes: u32,
    bytes_per_address: u32,
    taken: Arc<Mutex<Taken>>,
}

/// The bytes that are taken.
#[derive(Debug, Default)]
struct Taken {
    all: u32,
    /// By the addresses that took any. A request without an address counts among all only.
    by_address: HashMap<IpAddr, u32>,
}

/// The bytes of one request. Given back when this is dropped.
#[derive(Debug)]
struct Charge {
    intake: Intake,
    address: Option<IpAddr>,
    bytes: Mutex<u32>,
}

impl Intake {
    /// Nothing is taken yet.
    pub(super) fn new(addresses: Addresses, limits: &Limits) -> Self {
        Self {
            addresses,
            bytes: limits.request_bytes,
            bytes_per_address: limits.request_bytes_per_address,
            taken: Arc::default(),
        }
    }

    /// Lets a request in, unless there is no room for it.
    fn admit(&self, address: Option<IpAddr>) -> Result<Charge, Reached> {
        let charge = Charge { intake: self.clone(), address: address.map(network), bytes: Mutex::default() };
        charge.add(BASE)?;
        Ok(charge)
    }
}

impl Charge {
    /// Takes more, unless there is no room for it.
    fn add(&self, more: u32) -> Result<(), Reached> {
        let intake = &self.intake;
        let mut taken = intake.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let all = taken.all.saturating_add(more);
        if all > intake.bytes {
            let what = "bytes of all requests at once";
            return Err(Reached { what, limit: intake.bytes, flag: "--max-request-bytes" });
        }
        if let Some(address) = self.address {
            let own = taken.by_address.entry(address).or_default();
            if own.saturating_add(more) > intake.bytes_per_address {
                let (what, limit) = ("bytes of requests of an address at once", intake.bytes_per_address);
                return Err(Reached { what, limit, flag: "--max-request-bytes-per-address" });
            }
            *own += more;
        }
        taken.all = all;
        *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) += more;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut taken = self.intake.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= bytes;
        if let Some(address) = self.address
            && let Some(own) = taken.by_address.get_mut(&address)
        {
            *own -= bytes;
            if *own == 0 {
                taken.by_address.remove(&address);
            }
        }
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
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let peer = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        let address = peer.map(|peer| self.intake.addresses.client(peer.ip().to_canonical(), request.headers()));
        let charge = match self.intake.admit(address) {
            Ok(charge) => Arc::new(charge),
            Err(reached) => {
                let refused = exhausted(&reached, Some(PAUSE)).into_http();
                return Box::pin(async { Ok(refused) });
            }
        };
        let of_body = Arc::clone(&charge);
        let charged =
            request.map(|body| ChargedBody { body, charge: of_body, deadline: Instant::now() + ARRIVAL, late: None });
        let answer = self.inner.call(charged);
        Box::pin(async move {
            let answer = answer.await;
            drop(charge);
            answer
        })
    }
}

/// A request's message on its way.
#[derive(Debug)]
pub(super) struct ChargedBody<B> {
    body: B,
    charge: Arc<Charge>,
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

    fn intake(bytes: u32, bytes_per_address: u32) -> Intake {
        let limits = Limits { request_bytes: bytes, request_bytes_per_address: bytes_per_address, ..Limits::default() };
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
        let taken = intake.taken.lock().unwrap();
        assert!(taken.all == 0 && taken.by_address.is_empty(), "nothing stays of requests that ended: {taken:?}");
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
        let mut body = ChargedBody { body: Silence, charge, deadline: began + ARRIVAL, late: None };
        let end = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let error = end.expect("an end with a word").unwrap_err();
        assert_eq!(error.downcast_ref::<Status>().unwrap().code(), tonic::Code::DeadlineExceeded);
        assert_eq!(began.elapsed(), ARRIVAL);
    }
}

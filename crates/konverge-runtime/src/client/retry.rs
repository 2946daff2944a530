//! Repetitions of what the API server was too busy for, as long as they are short.

use std::time::Duration;

use http::{Request, Response, header::RETRY_AFTER};
use konverge_core::api_server;
use kube::client::{Body, retry::RetryPolicy};
use tower::{
    BoxError, Layer, Service,
    buffer::Buffer,
    retry::{Policy, Retry},
};

/// A server that asks for a longer pause is left alone: the caller gets its answer at once, and the worker is free for other objects. One second is
/// what the API server asks for when its queues are full.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The pauses where the server does not say, and how many repetitions there are.
const PAUSES: (Duration, Duration, u32) = (Duration::from_millis(50), Duration::from_secs(1), 3);

/// How many requests may wait to be handed to the service.
const HANDED_OVER: usize = 1024;

/// Repeats requests that were answered with 429, 503 or 504 a few times, unless the server asks for a pause of more than a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryLayer;

impl<S> Layer<S> for RetryLayer
where
    S: Service<Request<Body>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + Sync,
{
    type Service = Retry<ShortRetries, Buffer<Request<Body>, S::Future>>;

    fn layer(&self, inner: S) -> Self::Service {
        Retry::new(ShortRetries::new(), Buffer::new(inner, HANDED_OVER))
    }
}

/// The policy of [`RetryLayer`], for one request.
#[derive(Clone)]
pub(super) struct ShortRetries(Option<RetryPolicy>);

impl ShortRetries {
    fn new() -> Self {
        let (shortest, longest, times) = PAUSES;
        // An error would mean that the shortest is longer than the longest.
        Self(RetryPolicy::new(shortest, longest, times, true).ok())
    }
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for ShortRetries {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        if result.as_ref().is_ok_and(|answer| retry_after(answer).is_some_and(|pause| pause > LONGEST_WAIT)) {
            return None;
        }
        self.0.as_mut()?.retry(request, result)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Policy::<_, Response<B>, BoxError>::clone_request(self.0.as_mut()?, request)
    }
}

fn retry_after<B>(answer: &Response<B>) -> Option<Duration> {
    api_server::retry_after(answer.headers().get(RETRY_AFTER)?.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use tokio::time::Instant;
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    use super::*;
    use crate::client::DeadlineLayer;

    /// Sends one request to a server that answers so for ever; the last answer, how long it took and how many requests there were.
    async fn ask(code: u16, retry_after: Option<&'static str>) -> (Result<u16, BoxError>, Duration, u32) {
        let requests = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&requests);
        let server = service_fn(move |_: Request<Body>| {
            counter.fetch_add(1, Ordering::Relaxed);
            let mut answer = Response::builder().status(code);
            if let Some(value) = retry_after {
                answer = answer.header(RETRY_AFTER, value);
            }
            std::future::ready(answer.body(Body::empty()).map_err(BoxError::from))
        });
        let limit = DeadlineLayer(Duration::from_secs(30));
        let service = ServiceBuilder::new().layer(limit).layer(RetryLayer).service(server);
        let begun = Instant::now();
        let answer = service.oneshot(Request::new(Body::empty())).await;
        (answer.map(|answer| answer.status().as_u16()), begun.elapsed(), requests.load(Ordering::Relaxed))
    }

    /// A 429 that asks for a minute became "no answer within 30s", held a worker for 30 s and was repeated a second later.
    #[tokio::test(start_paused = true)]
    async fn a_long_retry_after_holds_no_worker_and_reaches_the_caller() {
        for (code, retry_after, longest, most) in [
            (429, Some("60"), 0, 1),
            (503, Some("2"), 0, 1),
            (429, Some("1"), 4, 4),
            (429, None, 4, 4),
            (503, None, 4, 4),
            (504, Some("soon"), 4, 4),
            (500, None, 0, 1),
            (403, None, 0, 1),
        ] {
            let (answer, took, requests) = ask(code, retry_after).await;
            assert_eq!(answer.expect("an answer"), code);
            assert!(took <= Duration::from_secs(longest), "{code} {retry_after:?}: {took:?}");
            assert_eq!(requests, most, "{code} {retry_after:?}");
        }
    }
}

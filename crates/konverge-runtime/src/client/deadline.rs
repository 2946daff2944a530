//! An end to every call.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tower::{BoxError, Layer, Service};

/// Ends a call whose answer has not begun in time. The body of an answer, such as a watch's, may take for ever.
#[derive(Debug, Clone, Copy)]
pub struct DeadlineLayer(pub Duration);

/// The service of [`DeadlineLayer`].
#[derive(Debug, Clone)]
pub struct Deadline<S> {
    inner: S,
    limit: Duration,
}

/// The answer did not begin in time. Whether the server did what was asked is unknown.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct TooLate(Duration);

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Deadline { inner, limit: self.0 }
    }
}

impl<S, Q> Service<Q> for Deadline<S>
where
    S: Service<Q>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let (answer, limit) = (self.inner.call(request), self.limit);
        async move {
            match tokio::time::timeout(limit, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_elapsed) => Err(TooLate(limit).into()),
            }
        }
        .boxed()
    }
}

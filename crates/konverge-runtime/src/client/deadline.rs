//! A deadline for every call, to the last byte of its answer.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tower::{BoxError, Layer, Service};

/// Fails calls whose answers are not complete in time, counted from the request. Only the body of a watch or of a log that is followed
/// may take for ever.
#[derive(Debug, Clone, Copy)]
pub struct DeadlineLayer(pub Duration);

/// The service of [`DeadlineLayer`].
#[derive(Debug, Clone)]
pub struct Deadline<S> {
    inner: S,
    limit: Duration,
}

/// The answer was not there in time. It is unknown whether the API server did what was requested.
#[derive(Debug, Clone, Copy, thiserror::Error)]
enum TooLate {
    #[error("no answer within {0:?}")]
    Answer(Duration),
    #[error("the answer is not complete after {0:?}")]
    Body(Duration),
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Deadline { inner, limit: self.0 }
    }
}

impl<S, Q, B> Service<Request<Q>> for Deadline<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<TimedBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let (begun, limit, is_stream) = (Instant::now(), self.limit, is_stream(request.uri()));
        let answer = self.inner.call(request);
        async move {
            match tokio::time::timeout(limit, answer).await {
                Ok(answer) => {
                    let deadline = (!is_stream).then(|| BodyDeadline { limit, at: begun + limit, timer: None });
                    Ok(answer.map_err(Into::into)?.map(|inner| TimedBody { inner, deadline }))
                }
                Err(_elapsed) => Err(TooLate::Answer(limit).into()),
            }
        }
        .boxed()
    }
}

/// Whether the body of the answer is a stream that may last: a watch, or a log that is followed.
fn is_stream(uri: &Uri) -> bool {
    let parameters = uri.query().unwrap_or_default().split('&').filter_map(|parameter| parameter.split_once('='));
    parameters.into_iter().any(|(name, value)| matches!(name, "watch" | "follow") && matches!(value, "true" | "1"))
}

/// The body of an answer, which fails at the deadline of its call.
pub struct TimedBody<B> {
    inner: B,
    deadline: Option<BodyDeadline>,
}

struct BodyDeadline {
    limit: Duration,
    at: Instant,
    /// Made once the body has to be waited for. Most bodies arrive together with their heads.
    timer: Option<Pin<Box<Sleep>>>,
}

impl BodyDeadline {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<TooLate> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.at)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(TooLate::Body(self.limit))
    }
}

impl<B> Body for TimedBody<B>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match &mut this.deadline {
            Some(deadline) => deadline.poll(context).map(|too_late| Some(Err(too_late.into()))),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::{StreamExt, stream};
    use http_body_util::StreamBody;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        Api, Client,
        api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams},
        client::{Body as RequestBody, ClientBuilder},
        discovery,
    };
    use tower::service_fn;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// A client of an API server that begins each answer after a while, sends half a body and then nothing more.
    fn client_of_a_server_that_stalls(begins_after: Duration) -> Client {
        let server = service_fn(move |_: Request<RequestBody>| async move {
            tokio::time::sleep(begins_after).await;
            let half = stream::iter([Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{\"kind\":")))]);
            Ok::<_, BoxError>(Response::new(StreamBody::new(half.chain(stream::pending()))))
        });
        ClientBuilder::new(server, "default").with_layer(&DeadlineLayer(LIMIT)).build()
    }

    /// Without a deadline for bodies, each of these calls hung for ever, and with it the worker of its object.
    #[tokio::test(start_paused = true)]
    async fn half_a_body_is_an_error_within_the_deadline_of_the_call() {
        for begins_after in [0, 1, 29].map(Duration::from_secs) {
            let client = client_of_a_server_that_stalls(begins_after);
            let maps = Api::<ConfigMap>::default_namespaced(client.clone());
            let map = ConfigMap::default();
            let apply = PatchParams::apply("test");
            let calls: [(&str, BoxFuture<'_, Option<kube::Error>>); 6] = [
                ("get", maps.get("a").map(Result::err).boxed()),
                ("list", async { maps.list(&ListParams::default()).await.err() }.boxed()),
                ("create", async { maps.create(&PostParams::default(), &map).await.err() }.boxed()),
                ("apply", async { maps.patch("a", &apply, &Patch::Apply(&map)).await.err() }.boxed()),
                ("delete", async { maps.delete("a", &DeleteParams::default()).await.err() }.boxed()),
                ("discover", async { discovery::group(&client, "apps").await.err() }.boxed()),
            ];
            for (call, answer) in calls {
                let begun = Instant::now();
                let error = tokio::time::timeout(2 * LIMIT, answer).await.unwrap_or_else(|_| panic!("{call} hangs"));
                assert_eq!(begun.elapsed(), LIMIT, "{call}, of which nothing came before {begins_after:?}");
                // The class of such an error is Unavailable.
                let error = error.unwrap_or_else(|| panic!("{call} has an answer"));
                assert!(matches!(&error, kube::Error::Service(_)), "{call}: {error:?}");
                assert!(error.to_string().contains("the answer is not complete after 30s"), "{call}: {error}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_may_be_quiet_for_longer_than_a_call_may_take() {
        let maps = Api::<ConfigMap>::default_namespaced(client_of_a_server_that_stalls(Duration::ZERO));
        let mut events = maps.watch(&WatchParams::default(), "7").await.unwrap().boxed();
        let event = tokio::time::timeout(100 * LIMIT, events.next()).await;
        assert!(event.is_err(), "{event:?}");
    }

    #[test]
    fn a_watch_and_a_log_that_is_followed_are_streams() {
        for (uri, expected) in [
            ("/api/v1/configmaps", false),
            ("/api/v1/configmaps?limit=1", false),
            ("/api/v1/configmaps?&watch=true&timeoutSeconds=25", true),
            ("/api/v1/configmaps?watch=1", true),
            ("/api/v1/configmaps?watch=false", false),
            ("/api/v1/configmaps?labelSelector=watch%3Dtrue", false),
            ("/api/v1/namespaces/a/pods/b/log?follow=true", true),
            ("/api/v1/namespaces/a/pods/b/log?tailLines=5", false),
            ("/api/v1/namespaces/a/configmaps/watch", false),
        ] {
            assert_eq!(is_stream(&uri.parse().unwrap()), expected, "{uri}");
        }
    }
}

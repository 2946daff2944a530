//! A limit for the calls that are under way.

use std::{
    num::NonZeroUsize,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::Semaphore;
use tower::{Layer, Service};

/// Lets a call wait while too many others wait for the beginning of their answers. The rest of a response, such as the events of a watch, takes no
/// place.
#[derive(Clone)]
pub(super) struct PlacesLayer(Arc<Semaphore>);

impl PlacesLayer {
    pub(super) fn new(most: NonZeroUsize) -> Self {
        Self(Arc::new(Semaphore::new(most.get())))
    }
}

/// The service of [`PlacesLayer`].
#[derive(Clone)]
pub(super) struct Places<S> {
    inner: S,
    places: Arc<Semaphore>,
}

impl<S> Layer<S> for PlacesLayer {
    type Service = Places<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Places { inner, places: Arc::clone(&self.0) }
    }
}

impl<S, Q> Service<Q> for Places<S>
where
    S: Service<Q>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        // Nothing is sent before this is polled for the first time.
        let (answer, places) = (self.inner.call(request), Arc::clone(&self.places));
        async move {
            // An error would mean that nobody limits anything any more.
            let _place = places.acquire().await;
            answer.await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::future::{join_all, pending};
    use tokio::sync::mpsc;
    use tower::{ServiceExt, service_fn};

    use super::*;

    #[tokio::test]
    async fn a_call_waits_for_a_place_and_one_that_is_given_up_leaves_its_own() {
        let (begun, mut begins) = mpsc::unbounded_channel();
        let service = service_fn(move |number: u8| {
            let begun = begun.clone();
            async move {
                begun.send(number).unwrap();
                if number < 2 {
                    pending::<()>().await;
                }
                Ok::<_, Infallible>(number)
            }
        });
        let service = PlacesLayer::new(NonZeroUsize::new(2).unwrap()).layer(service);
        let mut stuck: Vec<_> = [0, 1].map(|number| service.clone().oneshot(number)).into();
        let mut others = Box::pin(join_all([2, 3].map(|number| service.clone().oneshot(number))));
        for call in &mut stuck {
            assert!(futures::poll!(call).is_pending());
        }
        assert!(futures::poll!(&mut others).is_pending());
        assert_eq!([begins.recv().await, begins.recv().await], [Some(0), Some(1)]);
        assert!(begins.try_recv().is_err(), "two have both places");
        stuck.pop();
        let answers: Vec<_> = others.await.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, [2, 3]);
    }
}

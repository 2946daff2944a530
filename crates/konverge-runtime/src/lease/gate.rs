//! A client whose writes are sent only while this process leads.
//!
//! A leader whose threads were starved, suspended or blocked can run again after its lease has ended, and before the elector notices.
//! So the clock of the lease is read each time the future of a write is polled: before it connects, waits for a place, repeats itself after
//! a refusal, or is sent. A request that was handed to the connection before can still arrive, so writes need preconditions all the same.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, Response};
use kube::{Client, client::Body};
use tower::{BoxError, Service};

use super::Leadership;

/// A write was not sent, because this process does not lead.
#[derive(Debug, thiserror::Error)]
#[error("not sent: this process does not hold its lease; the leader will write")]
pub struct NotLeading;

impl NotLeading {
    /// Whether a request failed because this process does not lead.
    pub fn is_cause_of(error: &kube::Error) -> bool {
        matches!(error, kube::Error::Service(cause) if cause.is::<Self>())
    }
}

impl Leadership {
    /// Fails unless this process leads at this moment. For writes to other systems than the API server, right before each.
    pub fn check(&self) -> Result<(), NotLeading> {
        if self.is_leader() { Ok(()) } else { Err(NotLeading) }
    }

    /// A handle to the same client that sends writes only while this process leads: others fail with [`NotLeading`]. Reads, watches and
    /// reviews of tokens and permissions always pass.
    ///
    /// The lease itself, and what each replica maintains such as a certificate of its own, need the client without this gate.
    pub fn gate(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let valid_until = *client.valid_until();
        Client::new(Gate { client, leadership: self.clone() }, namespace).with_valid_until(valid_until)
    }
}

struct Gate {
    client: Client,
    leadership: Leadership,
}

impl Service<Request<Body>> for Gate {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Each request waits for the client beneath on its own.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let leadership = is_write(request.method(), request.uri().path()).then(|| self.leadership.clone());
        let client = self.client.clone();
        let answer = async move { client.send(request).await.map_err(BoxError::from) }.boxed();
        match leadership {
            Some(leadership) => Box::pin(Gated { answer, leadership }),
            None => answer,
        }
    }
}

/// A write under way, which is given up when its time is over.
struct Gated {
    answer: BoxFuture<'static, Result<Response<Body>, BoxError>>,
    leadership: Leadership,
}

impl Future for Gated {
    type Output = Result<Response<Body>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.leadership.check() {
            Ok(()) => self.answer.as_mut().poll(context),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

/// Whether a request changes anything. Reviews are created, but only answer a question.
fn is_write(method: &Method, path: &str) -> bool {
    let reviews = ["/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/"];
    !method.is_safe() && !reviews.iter().any(|group| path.contains(group))
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        thread,
        time::Duration,
    };

    use http::StatusCode;
    use k8s_openapi::api::{
        authentication::v1::TokenReview,
        core::v1::{ConfigMap, Secret},
    };
    use kube::{
        Api,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    };
    use tokio::{sync::watch, time::Instant};

    use super::*;

    /// A server that notes each request that reaches it.
    #[derive(Clone, Default)]
    struct Server(Arc<Mutex<Vec<String>>>);

    impl Server {
        fn client(&self) -> Client {
            let server = self.clone();
            let service = tower::service_fn(move |request: Request<Body>| {
                let line = format!("{} {}", request.method(), request.uri().path());
                server.0.lock().expect("no panic").push(line);
                async {
                    let answer = Response::builder().status(StatusCode::OK).body(Body::from(b"{}".to_vec()));
                    Ok::<_, BoxError>(answer.expect("a response"))
                }
            });
            Client::new(service, "shop")
        }

        fn seen(&self) -> Vec<String> {
            std::mem::take(&mut *self.0.lock().expect("no panic"))
        }
    }

    fn leads_for(time: Duration) -> (watch::Sender<Option<Instant>>, Leadership) {
        let sender = watch::Sender::new(Some(Instant::now() + time));
        let leadership = Leadership(sender.subscribe());
        (sender, leadership)
    }

    #[tokio::test]
    async fn only_writes_need_the_lease() {
        let server = Server::default();
        let (lease, leadership) = leads_for(Duration::from_secs(3600));
        let client = leadership.gate(server.client());
        assert_eq!(client.default_namespace(), "shop");
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        let reviews = Api::<TokenReview>::all(client);
        let post = PostParams::default();
        for leads in [true, false] {
            if !leads {
                lease.send_replace(None);
            }
            let patch = Patch::Merge(serde_json::json!({}));
            let refused: Vec<_> = [
                maps.get("a").await.err(),
                reviews.create(&post, &TokenReview::default()).await.err(),
                maps.create(&post, &ConfigMap::default()).await.err(),
                maps.patch("a", &PatchParams::default(), &patch).await.err(),
                maps.delete("a", &DeleteParams::default()).await.err(),
            ]
            .iter()
            .map(|error| error.as_ref().is_some_and(NotLeading::is_cause_of))
            .collect();
            assert_eq!(refused, [false, false, !leads, !leads, !leads]);
            let (map, review) =
                ("/api/v1/namespaces/shop/configmaps/a", "POST /apis/authentication.k8s.io/v1/tokenreviews");
            let mut expected = vec![format!("GET {map}"), review.to_owned()];
            if leads {
                let others = ["POST /api/v1/namespaces/shop/configmaps".to_owned()];
                expected.extend(others.into_iter().chain([format!("PATCH {map}"), format!("DELETE {map}")]));
            }
            assert_eq!(server.seen(), expected, "leads: {leads}");
        }
    }

    #[tokio::test]
    async fn a_worker_that_blocks_past_the_lease_sends_no_write() {
        let server = Server::default();
        let (lease, leadership) = leads_for(Duration::from_secs(3600));
        let secrets = Api::<Secret>::default_namespaced(leadership.gate(server.client()));
        secrets.create(&PostParams::default(), &Secret::default()).await.expect("it leads");
        leadership.check().expect("it leads");
        assert_eq!(server.seen().len(), 1);
        lease.send_replace(Some(Instant::now() + Duration::from_millis(50)));
        // The worker holds the only thread, so that neither the elector nor a timer runs before its next request.
        thread::sleep(Duration::from_millis(60));
        let error = secrets.create(&PostParams::default(), &Secret::default()).await.expect_err("refused");
        assert!(NotLeading::is_cause_of(&error), "{error}");
        assert_eq!(server.seen(), [""; 0]);
        leadership.check().expect_err("nor may it write elsewhere");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_waits_past_the_lease_is_not_repeated() {
        // As a client does that repeats a request after the server was too busy.
        let server = Server::default();
        let slow = {
            let client = server.client();
            tower::service_fn(move |request: Request<Body>| {
                let client = client.clone();
                async move {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    client.send(request).await.map_err(BoxError::from)
                }
            })
        };
        let (_lease, leadership) = leads_for(Duration::from_secs(1));
        let secrets = Api::<Secret>::default_namespaced(leadership.gate(Client::new(slow, "shop")));
        let error = secrets.create(&PostParams::default(), &Secret::default()).await.expect_err("refused");
        assert!(NotLeading::is_cause_of(&error), "{error}");
        assert_eq!(server.seen(), [""; 0]);
    }
}

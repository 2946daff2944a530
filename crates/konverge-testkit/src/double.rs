//! A scripted API server without network, for unit tests.

mod answer;
mod matcher;
mod reply;
mod script;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Request;
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use tower::{BoxError, service_fn};

use self::reply::ReplyBody;
pub(crate) use self::reply::status_object;
pub use self::{
    answer::Answer,
    matcher::{RecordedRequest, RequestMatcher},
    script::{Expectation, Times},
    watch::WatchScript,
};

/// An API server that knows what it will be asked, and answers what the test says. Clones are the same server.
///
/// Requests have to come in the order in which they were expected, unless an expectation may come
/// [at any time](Expectation::any_time). An unexpected request fails with an error that names the expected one. It also makes
/// [`finish`](Self::finish) fail, so a program that swallows errors cannot hide it.
///
/// Guarantees: nothing waits for real time or for the network, so it works while tokio's clock is paused; there is no retry layer,
/// so each request is seen as often as it is sent. Does not: validate objects or keep them; what it answers need not fit together.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use konverge_testkit::double::{Answer, ApiDouble, RequestMatcher};
/// use kube::Api;
/// use serde_json::json;
///
/// let server = ApiDouble::default();
/// let colours = json!({ "metadata": { "name": "colours" }, "data": { "sky": "blue" } });
/// let path = "/api/v1/namespaces/shop/configmaps/colours";
/// server.expect(RequestMatcher::get(path).answer(Answer::not_found("configmaps", "colours")));
/// server.expect(RequestMatcher::get(path).answer(Answer::object(&colours)));
///
/// let maps = Api::<ConfigMap>::namespaced(server.client(), "shop");
/// assert!(maps.get_opt("colours").await?.is_none());
/// assert!(maps.get_opt("colours").await?.is_some());
/// server.finish()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct ApiDouble(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    script: script::Script,
    requests: Vec<RecordedRequest>,
    unexpected_requests: Vec<String>,
}

/// The request differs from the expected one.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Unfinished(Vec<String>);

impl ApiDouble {
    /// Expects a request, after those that were stated before.
    pub fn expect(&self, expectation: Expectation) {
        self.state().script.expect(expectation);
    }

    /// A client of it, with `default` as its namespace. To be called within a tokio runtime.
    pub fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request| server.clone().serve(request));
        Client::new(service, "default")
    }

    /// All that it was asked so far, also what it did not expect.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state().requests.clone()
    }

    /// Fails when a request was not expected, or an expectation was not met. It may be called more than once.
    pub fn finish(&self) -> Result<(), Unfinished> {
        let state = self.state();
        let unmet = state.script.unmet().into_iter().map(|unmet| format!("never met: {unmet}"));
        let faults: Vec<String> = state.unexpected_requests.iter().cloned().chain(unmet).collect();
        if faults.is_empty() { Ok(()) } else { Err(Unfinished(faults)) }
    }

    async fn serve(self, request: Request<Body>) -> Result<http::Response<ReplyBody>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let request = RecordedRequest::new(&parts.method, &parts.uri, &body);
        // Bound first, so that the lock is not held while the answer takes its time.
        let answer = self.state().meet(request);
        answer?.give().await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn meet(&mut self, request: RecordedRequest) -> Result<Answer, String> {
        let answer = self.script.answer(&request);
        self.requests.push(request);
        if let Err(unexpected_request) = &answer {
            self.unexpected_requests.push(unexpected_request.clone());
        }
        answer
    }
}

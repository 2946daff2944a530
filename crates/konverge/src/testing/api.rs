//! The model as a service that a client talks to.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tower::{BoxError, service_fn};

use super::model::{Answer, Model, ModelRequest, Place, refused};

type ReplyBody = UnsyncBoxBody<Bytes, Infallible>;

/// An API server in memory: it keeps objects, answers reads, writes and watches, and records the writes. Clones are the same server.
///
/// It is a model and not an API server. It has no schemas, defaults, validation, admission, quotas, garbage collection, authorization or
/// discovery. Every kind and namespace exists. Each kind has a status subresource. A server-side apply merges maps field by field, well-known lists
/// such as `conditions` and `containers` by their key, and replaces all other lists. A test that depends on any of this needs a real API server.
#[derive(Clone, Default)]
pub struct ApiModel(Arc<Shared>);

#[derive(Default)]
struct Shared {
    model: Mutex<Model>,
    changed: watch::Sender<u64>,
}

impl fmt::Debug for ApiModel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ApiModel").field("version", &self.model().version()).finish_non_exhaustive()
    }
}

impl ApiModel {
    /// A client of it, whose default namespace is `default`. Call it within a tokio runtime.
    pub fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request| {
            let server = server.clone();
            async move { server.serve(request).await }
        });
        Client::new(service, "default")
    }

    pub(super) fn model(&self) -> MutexGuard<'_, Model> {
        self.0.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and tells the watches.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Model) -> T) -> T {
        let mut model = self.model();
        let changed = change(&mut model);
        let version = model.version();
        drop(model);
        self.0.changed.send_if_modified(|known| std::mem::replace(known, version) != version);
        changed
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<ReplyBody>, BoxError> {
        let (parts, body) = request.into_parts();
        let header = |name: header::HeaderName| {
            parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let request = ModelRequest {
            path: parts.uri.path().to_owned(),
            query: query(parts.uri.query().unwrap_or_default()),
            content_type: header(header::CONTENT_TYPE),
            is_metadata_only: header(header::ACCEPT).contains("as=PartialObjectMetadata"),
            method: parts.method,
            body: body.collect_bytes().await?.to_vec(),
        };
        if request.query.get("watch").is_some_and(|watch| watch == "true" || watch == "1") {
            return self.watch(request);
        }
        reply(self.change(|model| model.answer(&request)))
    }

    fn watch(self, request: ModelRequest) -> Result<Response<ReplyBody>, BoxError> {
        let place = Place::parse(&request.path).filter(|place| self.model().knows(&place.resource));
        let Some(place) = place else {
            return reply(refused(404, "the server could not find the requested resource"));
        };
        if request.query.contains_key("sendInitialEvents") {
            return reply(refused(422, "the model does not stream lists"));
        }
        let seconds = request.query.get("timeoutSeconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(300);
        let until = Instant::now() + Duration::from_secs(seconds);
        let begin = request.query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        let changed = self.0.changed.subscribe();
        let events = stream::unfold((begin, changed), move |(version, mut changed)| {
            let (server, place, request) = (self.clone(), place.clone(), request.clone());
            async move {
                loop {
                    changed.mark_unchanged();
                    let (events, next) = server.model().watched(&place, &request, version);
                    if !events.is_empty() {
                        return Some((lines(&events), (next, changed)));
                    }
                    if !matches!(tokio::time::timeout_at(until, changed.changed()).await, Ok(Ok(()))) {
                        return None;
                    }
                }
            }
        });
        let frames = events.map(|bytes| Ok::<_, Infallible>(http_body::Frame::data(bytes)));
        let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
        Ok(response.body(StreamBody::new(frames).boxed_unsync())?)
    }
}

fn reply((code, body): Answer) -> Result<Response<ReplyBody>, BoxError> {
    let response = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    Ok(response.body(Full::new(Bytes::from(body.to_string())).boxed_unsync())?)
}

fn lines(events: &[Value]) -> Bytes {
    events.iter().flat_map(|event| [event.to_string(), "\n".to_owned()]).collect::<String>().into()
}

fn query(text: &str) -> BTreeMap<String, String> {
    form_urlencoded::parse(text.as_bytes()).map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

//! One HTTP request: which path, how much of a body, how long.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use tokio::sync::Semaphore;

use super::limits::Limits;
use crate::{
    endpoint::{Endpoint, Panicked, Question, Reply, call},
    metrics::AdmissionMetrics,
};

pub(super) type Ready = dyn Fn() -> Result<(), String> + Send + Sync;

/// The service for the requests of all connections.
pub(super) struct Answerer {
    pub(super) endpoints: BTreeMap<String, Arc<dyn Endpoint>>,
    pub(super) limits: Limits,
    pub(super) calls: Semaphore,
    pub(super) metrics: AdmissionMetrics,
    pub(super) ready: Box<Ready>,
    /// Whether reviews are decided about.
    pub(super) admits: Box<Ready>,
}

impl Answerer {
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let Some(endpoint) = self.endpoints.get(path) else {
            return respond(self.own(path));
        };
        let path = path.to_owned();
        let guard = self.metrics.begin(&path);
        let begun = Instant::now();
        let limit = deadline(request.uri().query()).unwrap_or(self.limits.call).min(self.limits.call);
        let called = tokio::time::timeout(limit, self.call(Arc::clone(endpoint), &path, request)).await;
        let reply = called.unwrap_or_else(|_| {
            tracing::warn!(path, seconds = limit.as_secs_f32(), "a webhook did not answer in time");
            Reply::text(StatusCode::GATEWAY_TIMEOUT, "the webhook did not answer in time")
        });
        self.metrics.answered(&path, reply.status, begun.elapsed());
        drop(guard);
        respond(reply)
    }

    /// Paths that are nobody's webhook.
    fn own(&self, path: &str) -> Reply {
        match path {
            "/healthz" => Reply::text(StatusCode::OK, "ok"),
            "/readyz" => match (self.ready)() {
                Ok(()) => Reply::text(StatusCode::OK, "ok"),
                Err(why) => Reply::text(StatusCode::SERVICE_UNAVAILABLE, why),
            },
            _ => Reply::text(StatusCode::NOT_FOUND, "no webhook has this path"),
        }
    }

    async fn call(&self, endpoint: Arc<dyn Endpoint>, path: &str, request: Request<Incoming>) -> Reply {
        if request.method() != Method::POST {
            return Reply::text(StatusCode::METHOD_NOT_ALLOWED, "a webhook takes POST");
        }
        if !is_json(request.headers().get(CONTENT_TYPE)) {
            return Reply::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a webhook takes application/json");
        }
        let question = endpoint.question();
        if let (Question::Admission, Err(why)) = (question, (self.admits)()) {
            tracing::warn!(path, why, "a webhook cannot decide yet; its failure policy does");
            return Reply::text(StatusCode::SERVICE_UNAVAILABLE, format!("the webhook cannot decide yet: {why}"));
        }
        let limit = match question {
            Question::Admission => self.limits.admission_body,
            Question::Conversion => self.limits.conversion_body,
        };
        let announced =
            request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if announced.is_some_and(|length| length > limit) {
            return too_large(limit);
        }
        // Closed never, so the permit always comes.
        let _permit = self.calls.acquire().await;
        let body = match read(request.into_body(), limit).await {
            Ok(body) => body,
            Err(reply) => return reply,
        };
        call(endpoint, path, body).await.unwrap_or_else(|Panicked| {
            self.metrics.panicked(question);
            tracing::error!(path, "a webhook panicked; its failure policy decides about the request");
            Reply::text(StatusCode::INTERNAL_SERVER_ERROR, "the webhook panicked; its log says where")
        })
    }
}

async fn read<B>(body: B, limit: usize) -> Result<Bytes, Reply>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(limit)),
        Err(error) => Err(Reply::text(StatusCode::BAD_REQUEST, format!("the body ends too early: {error}"))),
    }
}

fn too_large(limit: usize) -> Reply {
    Reply::text(StatusCode::PAYLOAD_TOO_LARGE, format!("the review is longer than {limit} bytes"))
}

fn is_json(content_type: Option<&HeaderValue>) -> bool {
    let media_type = content_type.and_then(|value| value.to_str().ok()?.split(';').next());
    media_type.is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("application/json"))
}

/// How long the API server waits, from the query's `timeout=10s`. It is in whole seconds, and anything else is not understood.
fn deadline(query: Option<&str>) -> Option<Duration> {
    let value = query?.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    value.strip_suffix('s')?.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

fn respond(reply: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(reply.body));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    if reply.status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_servers_patience_is_read() {
        let table = [
            (None, None),
            (Some(""), None),
            (Some("timeout=10s"), Some(10)),
            (Some("a=b&timeout=3s"), Some(3)),
            (Some("timeout=0s"), None),
            (Some("timeout=1m0s"), None),
            (Some("timeout=-1s"), None),
        ];
        for (query, seconds) in table {
            assert_eq!(deadline(query), seconds.map(Duration::from_secs), "{query:?}");
        }
    }

    #[test]
    fn json_is_json_with_or_without_parameters() {
        let table = [
            (Some("application/json"), true),
            (Some("Application/JSON; charset=utf-8"), true),
            (Some("application/jsonp"), false),
            (Some("text/plain"), false),
            (None, false),
        ];
        for (value, expected) in table {
            assert_eq!(is_json(value.map(HeaderValue::from_static).as_ref()), expected, "{value:?}");
        }
    }
}

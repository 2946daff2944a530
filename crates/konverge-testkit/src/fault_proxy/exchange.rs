//! One request on its way to the API server and back.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, header, request::Parts};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::sync::watch::Receiver;
use tower::BoxError;

use super::{
    Proxy,
    decide::{Decision, Moment},
    journal::Place,
    plan::{Action, Phase, StatusAnswer},
    reply::{self, ReplyBody},
    stream,
    upstream::without_hop_by_hop,
};
use crate::api_request::{ApiRequest, Verb};

/// The client gets no answer: over HTTP/1.1 its connection ends, over HTTP/2 the stream of its request.
#[derive(Debug, thiserror::Error)]
#[error("no answer: {0}")]
pub(super) struct NoAnswer(String);

/// How it goes on after the faults of a phase.
enum Verdict {
    GoOn,
    Answer(Response<ReplyBody>),
}

pub(super) async fn serve(proxy: Arc<Proxy>, request: Request<Incoming>) -> Result<Response<ReplyBody>, NoAnswer> {
    // Its connection may be as old as the outage is young.
    if proxy.control.is_down() {
        return Err(NoAnswer("down".to_owned()));
    }
    let (parts, body) = request.into_parts();
    if !proxy.knows(parts.headers.get(header::AUTHORIZATION)) {
        return Ok(reply::status(&StatusAnswer { code: 401, reason: None, retry_after: None }));
    }
    let body = body.collect().await.map_err(|error| NoAnswer(format!("the request was cut short: {error}")))?;
    let body = body.to_bytes();
    let request = read(&parts, &body);
    let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let place = proxy.journal.begin(request.clone(), path);

    let faults = Faults { proxy: &proxy, request: &request, place: &place };
    if let Verdict::Answer(answer) = faults.inject_faults(Phase::Before).await? {
        place.responded(answer.status());
        return Ok(answer);
    }
    let response = forward(&proxy, parts, body, &place).await?;
    if response.status().is_success()
        && let Verdict::Answer(answer) = faults.inject_faults(Phase::After).await?
    {
        place.responded(answer.status());
        return Ok(answer);
    }
    let (parts, body) = response.into_parts();
    let body = if !parts.status.is_success() {
        body.map_err(BoxError::from).boxed_unsync()
    } else if request.verb == Verb::Watch {
        stream::watch(Arc::clone(&proxy), request.clone(), place.clone(), body)
    } else {
        faults.inject_body_faults(body).await?
    };
    let mut answer = Response::new(body);
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = without_hop_by_hop(&parts.headers);
    place.responded(parts.status);
    Ok(answer)
}

/// Forwards it in a task of its own: a client that goes away does not take back what it has sent, and the journal has to know what
/// became of it.
async fn forward(proxy: &Proxy, parts: Parts, body: Bytes, place: &Place) -> Result<Response<Incoming>, NoAnswer> {
    let (upstream, place) = (proxy.upstream.clone(), place.clone());
    place.forwarded();
    let asked = tokio::spawn(async move {
        let response = upstream.ask(&parts, body).await?;
        place.answered(response.status());
        Ok::<_, BoxError>(response)
    });
    let failed = |error: &dyn std::fmt::Display| NoAnswer(format!("the API server did not answer: {error}"));
    asked.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

/// Returns the parsed request; the name of a created object is in its body.
fn read(parts: &Parts, body: &[u8]) -> ApiRequest {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Named {
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        name: Option<String>,
    }
    let mut request = ApiRequest::parse(&parts.method, &parts.uri);
    if parts.method == Method::POST && request.name.is_empty() {
        let named: Named = serde_json::from_slice(body).unwrap_or_default();
        request.name = named.metadata.name.unwrap_or_default();
    }
    request
}

/// The faults of one request.
struct Faults<'a> {
    proxy: &'a Arc<Proxy>,
    request: &'a ApiRequest,
    place: &'a Place,
}

impl Faults<'_> {
    fn decide(&self, phase: Phase) -> (Vec<Decision>, Receiver<u64>) {
        // Heard from before the decision, so that a release right after it is not missed.
        let releases = self.proxy.control.releases();
        let decisions = self.proxy.control.decide(Moment { request: self.request, phase, event: None });
        (decisions, releases)
    }

    /// The fault before the client receives anything.
    async fn inject_faults(&self, phase: Phase) -> Result<Verdict, NoAnswer> {
        let (decisions, mut releases) = self.decide(phase);
        for decision in decisions {
            self.place.fault_injected(phase, &decision);
            match &decision.action {
                Action::Delay(span) => {
                    tokio::time::sleep(span.duration()).await;
                    continue;
                }
                Action::Status(answer) => return Ok(Verdict::Answer(reply::status(answer))),
                Action::Empty => return Ok(Verdict::Answer(reply::empty_list())),
                Action::ErrorEvent(code) => return Ok(Verdict::Answer(reply::json(reply::error_event(*code)))),
                Action::Freeze => {
                    let _ = releases.changed().await;
                }
                Action::Kill(process) => self.proxy.control.kill(process).await,
                Action::Down(span) => self.proxy.control.go_down(span.duration()),
                // `Rule` lets none of the others get here, and jitter has become a delay.
                Action::Drop
                | Action::Jitter(_)
                | Action::Truncate
                | Action::Hold
                | Action::Suppress
                | Action::Duplicate => {}
            }
            return Err(NoAnswer(format!("rule {}: {}", decision.rule, decision.action)));
        }
        Ok(Verdict::GoOn)
    }

    async fn inject_body_faults(&self, body: Incoming) -> Result<ReplyBody, NoAnswer> {
        let (decisions, releases) = self.decide(Phase::Body);
        if decisions.is_empty() {
            return Ok(body.map_err(BoxError::from).boxed_unsync());
        }
        let whole = body.collect().await.map_err(|error| NoAnswer(format!("the API server broke off: {error}")))?;
        Ok(stream::cut_short(Arc::clone(self.proxy), self.place.clone(), decisions, whole.to_bytes(), releases))
    }
}

//! Bodies that the proxy writes itself.

use std::{io, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tower::BoxError;

use super::plan::StatusAnswer;
use crate::double::status_object;

pub(super) type ReplyBody = UnsyncBoxBody<Bytes, BoxError>;

/// A write and the break of the stream must not happen in one poll, or the transport discards data that it has not sent yet.
const FLUSHED_WITHIN: Duration = Duration::from_millis(20);

/// The writing end of a body. Dropping all of its clones ends the body in good order.
#[derive(Clone)]
pub(super) struct BodySender(mpsc::Sender<Result<Frame<Bytes>, BoxError>>);

impl BodySender {
    pub(super) fn new() -> (Self, ReplyBody) {
        // Deep enough not to make a watch wait for each event, shallow enough to notice soon that the client is gone.
        let (sender, receiver) = mpsc::channel(16);
        (Self(sender), StreamBody::new(ReceiverStream::new(receiver)).boxed_unsync())
    }

    pub(super) async fn send(&self, bytes: Bytes) {
        // A client that is gone is noticed by `closed`.
        let _ = self.0.send(Ok(Frame::data(bytes))).await;
    }

    /// Ends the body with its connection.
    pub(super) async fn break_off(&self) {
        tokio::time::sleep(FLUSHED_WITHIN).await;
        let broken = io::Error::new(io::ErrorKind::ConnectionReset, "broken off by the plan of faults");
        let _ = self.0.send(Err(broken.into())).await;
    }

    /// The client is gone.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}

pub(super) fn whole(bytes: Bytes) -> ReplyBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// An answer that the API server did not give.
pub(super) fn status(answer: &StatusAnswer) -> Response<ReplyBody> {
    let StatusAnswer { code, reason, retry_after } = answer;
    let reason = reason.as_deref().unwrap_or_else(|| usual_reason(*code));
    let body = status_object(*code, reason, "the plan of faults says so").to_string();
    let mut response = json(Bytes::from(body));
    *response.status_mut() = StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(*seconds));
    }
    response
}

/// 200 with a body of JSON.
pub(super) fn json(body: Bytes) -> Response<ReplyBody> {
    let mut response = Response::new(whole(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A list of any kind without objects.
pub(super) fn empty_list() -> Response<ReplyBody> {
    let list = serde_json::json!({
        "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "1" }, "items": [],
    });
    json(Bytes::from(list.to_string()))
}

/// The line of a watch that has failed.
pub(super) fn error_event(code: u16) -> Bytes {
    let object = status_object(code, usual_reason(code), "the plan of faults says so");
    Bytes::from(format!("{}\n", serde_json::json!({ "type": "ERROR", "object": object })))
}

/// Returns the API server's reason for a code.
fn usual_reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Expired",
        413 => "RequestEntityTooLarge",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    }
}

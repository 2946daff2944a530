//! The endpoint of one path: bytes in, a status and bytes out.

use std::{panic::AssertUnwindSafe, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::StatusCode;
use konverge_core::error::in_one_line;
use serde::Serialize;

use crate::handler::HandlerError;

/// The answer to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

/// The kind of request that a path serves; each kind is counted and limited separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    Admission,
    Conversion,
}

/// A call that cannot be answered as asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The body is not what the path takes; the text goes back to the sender.
    #[error("{0}")]
    BadRequest(String),
    /// The handler could not decide; the text is only logged.
    #[error("the handler failed")]
    Handler(#[source] HandlerError),
    /// The answer cannot be written.
    #[error("cannot write the answer")]
    Answer(#[source] serde_json::Error),
}

/// Answers calls, whole body by whole body.
pub(crate) trait Endpoint: Send + Sync + 'static {
    fn question(&self) -> Question;

    fn answer(self: Arc<Self>, body: Bytes) -> BoxFuture<'static, Result<Bytes, Failure>>;
}

/// The handler panicked.
#[derive(Debug)]
pub(crate) struct Panicked;

/// Answers one call, whatever the handler does. `path` is for the log.
pub(crate) async fn call(endpoint: Arc<dyn Endpoint>, path: &str, body: Bytes) -> Result<Reply, Panicked> {
    // Nothing that the unwinding may leave half done is looked at again: the handler's own state is behind its own guards.
    let outcome = AssertUnwindSafe(async move { endpoint.answer(body).await }).catch_unwind().await;
    match outcome {
        Ok(Ok(body)) => Ok(Reply { status: StatusCode::OK, content_type: "application/json", body }),
        Ok(Err(Failure::BadRequest(why))) => {
            tracing::warn!(path, why, "a webhook was sent something that it cannot read");
            Ok(Reply::text(StatusCode::BAD_REQUEST, why))
        }
        Ok(Err(Failure::Handler(error))) => {
            tracing::error!(path, error = %in_one_line(&*error), "a webhook could not decide; its failure policy does");
            Ok(Reply::text(StatusCode::INTERNAL_SERVER_ERROR, "the webhook could not decide; its log says why"))
        }
        Ok(Err(error @ Failure::Answer(_))) => {
            tracing::error!(path, error = %in_one_line(&error), "a webhook's answer cannot be sent");
            Ok(Reply::text(StatusCode::INTERNAL_SERVER_ERROR, "the webhook cannot write its answer; its log says why"))
        }
        // The panic hook has told where; the payload may hold anything, so it is not repeated.
        Err(_payload) => Err(Panicked),
    }
}

impl Reply {
    pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: Bytes::from(text.into()) }
    }
}

pub(crate) fn write(answer: &impl Serialize) -> Result<Bytes, Failure> {
    serde_json::to_vec(answer).map(Bytes::from).map_err(Failure::Answer)
}

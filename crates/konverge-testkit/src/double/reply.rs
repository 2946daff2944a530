//! The pieces of a response of a double.

use std::io;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};
use tower::BoxError;

pub(super) type ReplyBody = UnsyncBoxBody<Bytes, BoxError>;

/// A broken connection, as the system tells it.
pub(super) fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection was reset, as the test asked for")
}

/// The `Status` of a failed request.
pub(crate) fn status_object(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    })
}

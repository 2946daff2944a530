//! The responses of a double.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use serde_json::json;
use tower::BoxError;

use super::{
    reply::{ReplyBody, reset, status_object},
    watch::WatchScript,
};

/// The answer to a request. Clones answer alike.
#[derive(Debug, Clone)]
pub struct Answer {
    after: Duration,
    headers: Vec<(String, String)>,
    reply: Reply,
}

#[derive(Debug, Clone)]
enum Reply {
    Json(StatusCode, Bytes),
    Hang,
    ConnectionError,
    Watch(WatchScript),
    /// The value given as an object is not an object.
    Unusable(String),
}

impl Answer {
    /// 200 with the object.
    pub fn object(object: &impl Serialize) -> Self {
        Self::json(StatusCode::OK, object)
    }

    /// 201 with the object.
    pub fn created(object: &impl Serialize) -> Self {
        Self::json(StatusCode::CREATED, object)
    }

    /// 200 with a list at a resource version: `Answer::list("v1", "ConfigMapList", "7", &maps)`.
    pub fn list(api_version: &str, kind: &str, resource_version: &str, items: &[impl Serialize]) -> Self {
        let metadata = json!({ "resourceVersion": resource_version });
        // Serialised here, because the macro would panic on what does not serialise.
        match serde_json::to_value(items) {
            Ok(items) => {
                Self::object(&json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "items": items }))
            }
            Err(error) => Self::of(Reply::Unusable(error.to_string())),
        }
    }

    /// A Status with a code, a reason such as `Conflict`, and a message. A code that HTTP does not have is an error of the connection.
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        match StatusCode::from_u16(code) {
            Ok(status) => Self::json(status, &status_object(code, reason, message)),
            Err(error) => Self::of(Reply::Unusable(error.to_string())),
        }
    }

    /// 404, as for an object that is not there: `Answer::not_found("configmaps", "colours")`.
    pub fn not_found(resource: &str, name: &str) -> Self {
        Self::status(404, "NotFound", &format!("{resource} \"{name}\" not found"))
    }

    /// No answer, ever.
    pub fn hang() -> Self {
        Self::of(Reply::Hang)
    }

    /// The connection breaks before an answer.
    pub fn connection_error() -> Self {
        Self::of(Reply::ConnectionError)
    }

    /// A watch that tells what the script says, from its beginning, and stays open until the script ends it.
    pub fn watch(script: &WatchScript) -> Self {
        Self::of(Reply::Watch(script.clone()))
    }

    /// The same, but so much later, by tokio's clock, which a test may pause.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = delay;
        self
    }

    /// The same with a header, such as `Retry-After`.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    fn of(reply: Reply) -> Self {
        Self { after: Duration::ZERO, headers: Vec::new(), reply }
    }

    fn json(status: StatusCode, object: &impl Serialize) -> Self {
        Self::of(match serde_json::to_vec(object) {
            Ok(body) => Reply::Json(status, body.into()),
            Err(error) => Reply::Unusable(error.to_string()),
        })
    }

    pub(super) async fn give(self) -> Result<Response<ReplyBody>, BoxError> {
        if !self.after.is_zero() {
            tokio::time::sleep(self.after).await;
        }
        let (status, body) = match self.reply {
            Reply::Json(status, body) => (status, Full::new(body).map_err(|never| match never {}).boxed_unsync()),
            Reply::Watch(script) => (StatusCode::OK, script.body()),
            Reply::Hang => std::future::pending().await,
            Reply::ConnectionError => return Err(reset().into()),
            Reply::Unusable(why) => return Err(format!("the answer in the test cannot be given: {why}").into()),
        };
        let response = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
        let response = self.headers.iter().fold(response, |response, (name, value)| response.header(name, value));
        Ok(response.body(body)?)
    }
}

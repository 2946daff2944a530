//! `ConversionReview`: a question about many objects, answered with all of them or with the first that stands in the way.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use kube::{Resource, core::response::Status};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::Converter;
use crate::{
    admission::not_json,
    endpoint::{Endpoint, Failure, Question, write},
};

const KIND: &str = "ConversionReview";
const GROUP: &str = "apiextensions.k8s.io/";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewRequest {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

#[derive(Deserialize)]
struct Request {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    #[serde(default)]
    objects: Vec<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse {
    api_version: String,
    kind: &'static str,
    response: Response,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    converted_objects: Vec<Value>,
    result: Status,
}

/// A converter behind a path.
pub(crate) struct Conversion<H>(pub(crate) Converter<H>);

impl<H: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static> Endpoint for Conversion<H> {
    fn question(&self) -> Question {
        Question::Conversion
    }

    fn answer(self: Arc<Self>, body: Bytes) -> BoxFuture<'static, Result<Bytes, Failure>> {
        Box::pin(async move {
            // A list may hold thousands of objects, and computing must not hold up other answers.
            match tokio::task::spawn_blocking(move || self.review(&body)).await {
                Ok(outcome) => outcome,
                Err(ended) => match ended.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(cancelled) => Err(Failure::Handler(cancelled.into())),
                },
            }
        })
    }
}

impl<H: Resource<DynamicType = ()> + Serialize + DeserializeOwned> Conversion<H> {
    /// The answer to a question, as bytes.
    fn review(&self, body: &[u8]) -> Result<Bytes, Failure> {
        let review: ReviewRequest = serde_json::from_slice(body).map_err(|error| not_json(&error))?;
        if review.kind != KIND || !review.api_version.starts_with(GROUP) {
            let got = format!("{} of {}", review.kind, review.api_version);
            return Err(Failure::BadRequest(format!("this path takes a {KIND} of {GROUP}v1, and got a {got}")));
        }
        let response = match review.request {
            None => Response::failed(String::new(), "the review has no request", "BadRequest"),
            Some(request) => self.respond(request),
        };
        write(&ReviewResponse { api_version: review.api_version, kind: KIND, response })
    }

    fn respond(&self, Request { uid, desired_api_version, objects }: Request) -> Response {
        let converted: Result<Vec<Value>, _> =
            objects.iter().map(|object| self.0.convert(object, &desired_api_version)).collect();
        match converted {
            Ok(converted_objects) => Response { uid, converted_objects, result: Status::success() },
            Err(error) => {
                tracing::warn!(%error, "a conversion failed");
                Response::failed(uid, &error.to_string(), "ConversionFailed")
            }
        }
    }
}

impl Response {
    fn failed(uid: String, message: &str, reason: &str) -> Self {
        Self { uid, converted_objects: Vec::new(), result: Status::failure(message, reason) }
    }
}

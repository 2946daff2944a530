//! `AdmissionReview`: from the question's bytes through a typed handler to the answer's bytes.

mod judges;

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::future::BoxFuture;
use json_patch::Patch;
use kube::core::response::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use judges::{Defaulting, Judge, Mutating, Validating};

use crate::{
    Review, Undecodable, Verdict,
    endpoint::{Endpoint, Failure, Question, write},
    handler::HandlerError,
    webhook::OnUndecodable,
};

const KIND: &str = "AdmissionReview";
const GROUP: &str = "admission.k8s.io/";

/// The outcome of a handler.
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    pub(crate) patch: Option<Patch>,
}

/// Why a handler made nothing of a request.
pub(crate) enum Unjudged {
    Undecodable(Undecodable),
    Failed(HandlerError),
}

impl From<Undecodable> for Unjudged {
    fn from(undecodable: Undecodable) -> Self {
        Self::Undecodable(undecodable)
    }
}

/// The question or the answer as it is sent.
#[derive(Deserialize)]
struct ReviewRequest {
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse<'a> {
    api_version: &'a str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<String, String>,
}

/// A handler behind a path.
pub(crate) struct Admission<J> {
    pub(crate) judge: J,
    pub(crate) on_undecodable: OnUndecodable,
}

impl<J: Judge> Endpoint for Admission<J> {
    fn question(&self) -> Question {
        Question::Admission
    }

    fn answer(self: Arc<Self>, body: Bytes) -> BoxFuture<'static, Result<Bytes, Failure>> {
        Box::pin(async move {
            let question: ReviewRequest = serde_json::from_slice(&body).map_err(|error| not_json(&error))?;
            drop(body);
            if question.kind != KIND || !question.api_version.starts_with(GROUP) {
                let got = format!("{} of {}", question.kind, question.api_version);
                return Err(Failure::BadRequest(format!("this path takes an {KIND} of {GROUP}v1, and got a {got}")));
            }
            let version = question.api_version;
            let Some(request) = question.request else {
                return answer(&version, "", &refused("the review has no request"));
            };
            let review: Review<Value> = match serde_path_to_error::deserialize(&request) {
                Ok(review) => review,
                Err(error) => {
                    let uid = request.get("uid").and_then(Value::as_str).unwrap_or_default();
                    let why = format!("the request cannot be read at {}: {}", error.path(), error.inner());
                    return answer(&version, uid, &refused(why));
                }
            };
            drop(request);
            let uid = review.uid.clone();
            let judgement = match self.judge.judge(review).await {
                Ok(judgement) => judgement,
                Err(Unjudged::Failed(error)) => return Err(Failure::Handler(error)),
                Err(Unjudged::Undecodable(undecodable)) => match self.on_undecodable {
                    OnUndecodable::Deny => refused(undecodable.to_string()),
                    OnUndecodable::Fail => return Err(Failure::Handler(undecodable.into())),
                    OnUndecodable::Admit => Judgement {
                        verdict: Verdict::allow().warning(format!("not checked: {undecodable}")),
                        patch: None,
                    },
                },
            };
            answer(&version, &uid, &judgement)
        })
    }
}

/// A body that is cut short or no JSON at all. The position tells it without quoting the body.
pub(crate) fn not_json(error: &serde_json::Error) -> Failure {
    let what = if error.is_eof() { "ends too early" } else { "is not the JSON of a review" };
    Failure::BadRequest(format!("the body {what} (line {}, column {})", error.line(), error.column()))
}

fn refused(why: impl Into<String>) -> Judgement {
    Judgement { verdict: Verdict::deny(why).code(400).reason("BadRequest"), patch: None }
}

fn answer(version: &str, uid: &str, judgement: &Judgement) -> Result<Bytes, Failure> {
    let patch = judgement.patch.as_ref().filter(|_| judgement.verdict.is_allowed());
    let patch = patch.map(serde_json::to_vec).transpose().map_err(Failure::Answer)?;
    write(&ReviewResponse {
        api_version: version,
        kind: KIND,
        response: Response {
            uid,
            allowed: judgement.verdict.is_allowed(),
            status: judgement.verdict.status(),
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch: patch.map(|patch| STANDARD.encode(patch)),
            warnings: judgement.verdict.warnings(),
            audit_annotations: judgement.verdict.audit_annotations(),
        },
    })
}

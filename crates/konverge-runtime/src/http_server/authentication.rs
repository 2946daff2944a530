//! Authentication of readers: the API server identifies the client by a bearer token, and decides whether it may `get` the path.
//!
//! The program needs `create` on `tokenreviews` and `subjectaccessreviews`. A client needs `get` on the path among the `nonResourceURLs` of a cluster
//! role.

mod answers;

use std::{fmt, time::Duration};

use axum::{
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use konverge_core::error::in_one_line;
use kube::{Api, Client, api::PostParams};
use tokio::{sync::Semaphore, time::timeout};

use answers::Answers;

/// An answer is remembered for this long: a right that is taken away is still good for as long, and a scraper that comes more often costs
/// no more questions.
const REMEMBERED: Duration = Duration::from_secs(10);

/// For both questions together, waiting for a turn included. Prometheus waits for 10 seconds unless it was told otherwise.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);

/// Callers that are asked about at once. Anybody may come with any token, and the API server is to hear little of it.
const QUESTIONS: usize = 4;

/// Lets those read whose bearer token the API server knows (`TokenReview`), and who may `get` the path (`SubjectAccessReview`).
///
/// Guarantees: without an answer of the API server nobody reads; a token is kept nowhere, only a keyed digest of it; answers are
/// remembered for ten seconds, some hundred at most. Does not: take client certificates.
pub struct Authentication {
    client: Client,
    answers: Answers,
    turns: Semaphore,
}

/// The API server's decision about a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It may read.
    Allowed,
    /// It is known, and may not read.
    Forbidden,
    /// It is not known.
    Unknown,
}

/// Why somebody may not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Unauthorized,
    Forbidden,
    /// Nobody could say.
    Unanswered,
}

impl fmt::Debug for Authentication {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Authentication")
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Unauthorized => {
                let why = "needs a bearer token that the API server knows\n";
                (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], why).into_response()
            }
            Self::Forbidden => {
                let why = "needs a cluster role with the verb get on this path among its nonResourceURLs\n";
                (StatusCode::FORBIDDEN, why).into_response()
            }
            Self::Unanswered => {
                (StatusCode::SERVICE_UNAVAILABLE, "the API server did not say whether you may read this\n")
                    .into_response()
            }
        }
    }
}

impl Authentication {
    /// Asks with this client.
    pub fn new(client: Client) -> Self {
        Self { client, answers: Answers::new(REMEMBERED), turns: Semaphore::new(QUESTIONS) }
    }

    /// Whether a request with these headers may read the path.
    pub(super) async fn admit(&self, headers: &HeaderMap, path: &str) -> Result<(), Refusal> {
        let token = bearer(headers).ok_or(Refusal::Unauthorized)?;
        match timeout(ANSWER_WITHIN, self.verdict(token, path)).await {
            Ok(Ok(Verdict::Allowed)) => Ok(()),
            Ok(Ok(Verdict::Forbidden)) => Err(Refusal::Forbidden),
            Ok(Ok(Verdict::Unknown)) => Err(Refusal::Unauthorized),
            Ok(Err(error)) => {
                tracing::warn!(why = in_one_line(&error), "cannot ask the API server who may read metrics");
                Err(Refusal::Unanswered)
            }
            Err(_elapsed) => {
                tracing::warn!("the API server did not say in {ANSWER_WITHIN:?} who may read metrics");
                Err(Refusal::Unanswered)
            }
        }
    }

    async fn verdict(&self, token: &str, path: &str) -> Result<Verdict, kube::Error> {
        let question = self.answers.question(token, path);
        if let Some(verdict) = self.answers.get(&question) {
            return Ok(verdict);
        }
        // Never closed, so the turn always comes.
        let _turn = self.turns.acquire().await;
        // Somebody with the same token may have asked meanwhile.
        if let Some(verdict) = self.answers.get(&question) {
            return Ok(verdict);
        }
        let verdict = match self.caller(token).await? {
            None => Verdict::Unknown,
            Some(caller) => self.of_known(caller, path).await?,
        };
        self.answers.put(question, verdict);
        Ok(verdict)
    }

    /// Returns the user of the token, if it is valid.
    async fn caller(&self, token: &str) -> Result<Option<UserInfo>, kube::Error> {
        #[allow(clippy::useless_conversion, reason = "in the types of older versions of Kubernetes it is an option")]
        let spec = TokenReviewSpec { token: token.to_owned().into(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = answer.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }

    async fn of_known(&self, caller: UserInfo, path: &str) -> Result<Verdict, kube::Error> {
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let UserInfo { username, uid, groups, extra } = caller;
        let spec = SubjectAccessReviewSpec {
            non_resource_attributes: Some(attributes),
            user: username,
            uid,
            groups,
            extra,
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = answer.status.unwrap_or_default();
        let may = status.allowed && status.denied != Some(true);
        Ok(if may { Verdict::Allowed } else { Verdict::Forbidden })
    }
}

/// The token of `Authorization: Bearer <token>`, if there is exactly one such header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).into_iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ')).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_what_follows_its_scheme() {
        for (values, expected) in [
            (&[][..], None),
            (&["Bearer a.b.c"][..], Some("a.b.c")),
            (&["bearer  a"], Some("a")),
            (&["Bearer"], None),
            (&["Bearer "], None),
            (&["Basic YTpi"], None),
            (&["Bearer a b"], None),
            (&["Bearer a", "Bearer b"], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            assert_eq!(bearer(&headers), expected, "{values:?}");
        }
    }
}

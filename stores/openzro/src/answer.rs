//! The meaning of a response. Pure.

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use konverge_endpoint::Outcome;
use serde::Deserialize;

use crate::error::{Cause, Effect};

/// A message of the server is never shown longer than this.
const LONGEST_MESSAGE: usize = 400;

/// The pause after a 429 that names none.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);

/// A server that asks to be left alone for longer has a wrong clock.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// The router's response for a route that it does not have.
const UNMATCHED: &[u8] = b"404 page not found";

/// A complete answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
    pub(crate) retry_after: Option<Duration>,
}

/// The request.
pub(crate) struct RequestDescription<'a> {
    pub(crate) method: &'a Method,
    pub(crate) address: &'a Arc<str>,
    pub(crate) route: &'static str,
}

/// The API's form of an error.
#[derive(Deserialize)]
struct Refusal {
    message: String,
    code: u16,
}

impl Answer {
    /// The API's own error message. `None` if the answer is not an error in the API's form with the answer's own status.
    fn message(&self) -> Option<String> {
        let refusal: Refusal = serde_json::from_slice(&self.body).ok()?;
        let words: Vec<_> = refusal.message.split_whitespace().collect();
        (refusal.code == self.status.as_u16()).then(|| words.join(" ").chars().take(LONGEST_MESSAGE).collect())
    }

    /// The JSON of a success, or the cause of the failure and whether the request took effect.
    pub(crate) fn result<'a, T: Deserialize<'a>>(
        &'a self,
        description: &RequestDescription<'_>,
    ) -> Result<T, (Effect, Cause)> {
        // A GET changes nothing, whatever its answer is.
        let unknown = if *description.method == Method::GET { Effect::None } else { Effect::Unknown };
        let status = self.status.as_u16();
        let foreign = |why: &str| Cause::Foreign {
            address: Arc::clone(description.address),
            status,
            why: why.to_owned(),
            retry_after: self.pause(),
        };
        if self.status == StatusCode::OK {
            return serde_json::from_slice(&self.body).map_err(|error| {
                let why = if error.is_data() { "JSON of another form" } else { "no complete JSON" };
                let why = format!("{why} at line {} column {}", error.line(), error.column());
                (unknown, foreign(&why))
            });
        }
        let Some(message) = self.message() else {
            return Err(match status {
                429 => (Effect::None, Cause::Limited { retry_after: self.pause() }),
                404 if self.body.trim_ascii() == UNMATCHED => {
                    (Effect::None, Cause::Unsupported { route: description.route })
                }
                300..=399 => (unknown, foreign("a redirect, which is not followed")),
                _ => (unknown, foreign("not an error in the form of the API")),
            });
        };
        Err(match status {
            401 => (Effect::None, Cause::Unauthenticated { message }),
            403 => (Effect::None, Cause::Forbidden { message }),
            // A POST answers so for an object that its body or path refers to.
            404 if *description.method == Method::POST => (Effect::None, Cause::Invalid { status, message }),
            404 => (Effect::None, Cause::Absent { message }),
            400 if *description.method == Method::DELETE => (Effect::None, refused_deletion(message)),
            409 => (Effect::None, Cause::Exists { message }),
            429 => (Effect::None, Cause::Limited { retry_after: self.pause() }),
            400..=499 => (Effect::None, Cause::Invalid { status, message }),
            _ => (unknown, Cause::Failed { status, message }),
        })
    }

    fn pause(&self) -> Option<Duration> {
        self.retry_after.map(|pause| pause.min(LONGEST_PAUSE))
    }

    /// The server's state, as this response shows it.
    pub(crate) fn outcome(&self) -> Outcome {
        let status = self.status.as_u16();
        let cause: Arc<str> = format!("it answered {status}").into();
        match (status, self.message()) {
            (429, _) => Outcome::Limited("its rate limit is reached".into(), self.pause().unwrap_or(DEFAULT_PAUSE)),
            (503, _) if self.retry_after.is_some() => Outcome::Limited(cause, self.pause().unwrap_or(DEFAULT_PAUSE)),
            (401, Some(message)) => Outcome::Closed(format!("it refuses the token: {message}").into()),
            // Every request of a blocked user is refused, unlike that of a user with too low a role.
            (403, Some(message)) if message.contains("user is blocked") => {
                Outcome::Closed(format!("it refuses the token's user: {message}").into())
            }
            // An error in the API's form is about the request: it answers 500 for an invalid address.
            (_, Some(_)) | (200, None) => Outcome::Served,
            (404, None) if self.body.trim_ascii() == UNMATCHED => Outcome::Served,
            (_, None) => Outcome::Failed(cause),
        }
    }
}

/// The meaning of a 400 to a DELETE: the server's type for each refusal of a group's deletion.
fn refused_deletion(message: String) -> Cause {
    if let Some(link) = message.split_once("has been linked to ").map(|(_, link)| link) {
        let (kind, name) = link.split_once(": ").unwrap_or((link, ""));
        return Cause::Linked { kind: kind.to_owned(), name: name.to_owned() };
    }
    // `group: <id> not found`, and nothing that merely quotes it.
    if message.starts_with("group: ") && message.ends_with(" not found") {
        return Cause::Absent { message };
    }
    Cause::Invalid { status: 400, message }
}

#[cfg(test)]
mod tests {
    use konverge_core::error::Classify;
    use serde_json::Value;

    use super::*;
    use crate::error::OpenZroError;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status: StatusCode::from_u16(status).unwrap(), body: body.as_bytes().to_vec(), retry_after: None }
    }

    fn judged(method: &Method, status: u16, body: &str) -> (&'static str, Effect) {
        let description = RequestDescription { method, address: &"http://oz".into(), route: "/groups" };
        let (effect, cause) = answer(status, body).result::<Value>(&description).unwrap_err();
        let error = OpenZroError { what: "x".to_owned(), effect, cause };
        (error.reason(), error.effect())
    }

    fn api(status: u16, message: &str) -> String {
        serde_json::json!({ "message": message, "code": status }).to_string()
    }

    #[test]
    fn each_answer_has_a_cause_and_says_whether_the_request_took_effect() {
        let (none, unknown) = (Effect::None, Effect::Unknown);
        for (method, status, message, reason, effect) in [
            (Method::PUT, 400, "couldn't parse json request", "Rejected", none),
            (Method::DELETE, 400, "group: g1 not found", "NotFound", none),
            (Method::DELETE, 400, "group has been linked to policy: web: not found", "InUse", none),
            (Method::DELETE, 400, "deleting group all is not allowed", "Rejected", none),
            (Method::GET, 400, "group: g1 not found", "Rejected", none),
            (Method::POST, 401, "token invalid", "TokenRefused", none),
            (Method::POST, 403, "permission denied", "PermissionDenied", none),
            (Method::GET, 404, "network: n not found", "NotFound", none),
            (Method::DELETE, 404, "network: n not found", "NotFound", none),
            (Method::POST, 404, "failed to create network resource: group: g not found", "Rejected", none),
            (Method::POST, 409, "group with name a already exists", "AlreadyExists", none),
            (Method::POST, 412, "idp manager must be enabled", "Rejected", none),
            (Method::POST, 422, "valid port value is in 1..65535 range", "Rejected", none),
            (Method::POST, 429, "slow down", "RateLimited", none),
            (Method::POST, 500, "internal server error", "OpenZroFailed", unknown),
            (Method::GET, 500, "internal server error", "OpenZroFailed", none),
        ] {
            assert_eq!(judged(&method, status, &api(status, message)), (reason, effect), "{method} {status} {message}");
        }
        for (method, status, body, reason, effect) in [
            (Method::DELETE, 404, "<html>404</html>", "InvalidAnswer", unknown),
            (Method::GET, 404, "<html>404</html>", "InvalidAnswer", none),
            (Method::GET, 404, "404 page not found\n", "Unsupported", none),
            (Method::GET, 404, r#"{"message":"not found"}"#, "InvalidAnswer", none),
            (Method::GET, 404, r#"{"message":"not found","code":200}"#, "InvalidAnswer", none),
            (Method::GET, 404, "{}", "InvalidAnswer", none),
            (Method::GET, 404, "", "InvalidAnswer", none),
            (Method::POST, 200, r#"{"id":"g"#, "InvalidAnswer", unknown),
            (Method::POST, 200, "", "InvalidAnswer", unknown),
            (Method::POST, 204, "", "InvalidAnswer", unknown),
            (Method::POST, 302, "", "InvalidAnswer", unknown),
            (Method::POST, 401, "<html>", "InvalidAnswer", unknown),
            (Method::POST, 405, "", "InvalidAnswer", unknown),
            (Method::POST, 429, "<html>", "RateLimited", none),
            (Method::POST, 502, "<html>", "InvalidAnswer", unknown),
            (Method::POST, 503, "", "InvalidAnswer", unknown),
        ] {
            assert_eq!(judged(&method, status, body), (reason, effect), "{method} {status} {body}");
        }
    }

    #[test]
    fn who_blocks_a_group_is_named() {
        let Cause::Linked { kind, name } = refused_deletion("group has been linked to network router: a: b".to_owned())
        else {
            panic!("it is linked")
        };
        assert_eq!((&*kind, &*name), ("network router", "a: b"));
    }

    #[test]
    fn what_an_answer_says_about_the_server() {
        let outcome = |status, body: &str| answer(status, body).outcome();
        let served = [
            outcome(200, "null"),
            outcome(404, "404 page not found"),
            outcome(500, &api(500, "internal server error")),
            outcome(403, &api(403, "permission denied")),
            outcome(422, &api(422, "x")),
        ];
        assert!(served.iter().all(|outcome| *outcome == Outcome::Served), "{served:?}");
        assert!(matches!(outcome(401, &api(401, "token invalid")), Outcome::Closed(_)));
        assert!(matches!(outcome(403, &api(403, "user is blocked")), Outcome::Closed(_)));
        assert!(matches!(outcome(401, "<html>"), Outcome::Failed(_)));
        assert!(matches!(outcome(502, ""), Outcome::Failed(_)));
        let limited = Answer { retry_after: Some(Duration::from_secs(7)), ..answer(429, "") };
        assert!(matches!(limited.outcome(), Outcome::Limited(_, pause) if pause.as_secs() == 7));
    }
}

//! Calls of a JSON API, whose failures are those of a [`Remote`](konverge_remote::Remote).

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use konverge_core::{
    error::{ErrorClass, in_one_line},
    http_status,
};
use konverge_endpoint::retry_after;
use konverge_external::http::{
    Token, client,
    reqwest::{
        self, Method, StatusCode, Url,
        header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
    },
};
use konverge_remote::{Deletion, Failure};
use serde::{
    Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

use crate::error::Error;

/// The limit for a connection, TLS included.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// The limit for a whole call, to the last byte of the answer.
const CALL_WITHIN: Duration = Duration::from_secs(30);
/// The largest answer, in bytes.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;
/// The number of characters of a server's explanation that a message repeats.
const EXPLANATION: usize = 200;
const JSON: &str = "application/json";

/// A client of a JSON API for the calls of a [`Remote`](crate::remote::Remote). It makes each answer an item or a [`Failure`].
///
/// | Answer | Reason | Retried |
/// |---|---|---|
/// | none, an incomplete one, 401, 5xx, or a success that is not the expected JSON | `ApiUnavailable` | when the API answers again |
/// | 429 or 5xx with `Retry-After` | `ApiBusy` | after that time |
/// | another 4xx, such as 400, 403 and 422 | `ApiRefuses` | after pauses of up to two minutes |
/// | 409 | `ApiConflict` | with backoff |
/// | everything else, such as a redirect | `ApiFailed` | with backoff |
///
/// A call without an answer, and one that ended with 408 or 5xx, may have taken effect. A 404 says that there is no such item only if its body is
/// JSON, because a proxy answers 404 with a page. Messages repeat the first 200 characters of a refusal, so the API must not explain with secrets.
///
/// It follows no redirect, so the token never goes elsewhere.
#[derive(Clone)]
pub struct JsonApi {
    name: &'static str,
    address: String,
    http: reqwest::Client,
    token: Option<Token>,
}

impl fmt::Debug for JsonApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonApi").field("name", &self.name).finish_non_exhaustive()
    }
}

impl JsonApi {
    /// A client of the API at `address`, such as `https://api.example.com/v1`. `name` is its name in messages, from a fixed list.
    ///
    /// # Errors
    ///
    /// Returns a permanent error if the address is not one of HTTP, or if the client cannot be made.
    pub fn new(name: &'static str, address: &str) -> Result<Self, Error> {
        let is_http = |url: &Url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
        if !Url::parse(address).is_ok_and(|url| is_http(&url)) {
            let message =
                format!("the address of the {name} is not valid; give one that begins with https:// or http://");
            return Err(Error::permanent("InvalidAddress", message));
        }
        let http = client(CONNECT_WITHIN, &[]).map_err(|error| {
            Error::permanent("NoClient", format!("cannot make a client of the {name}")).caused_by(error)
        })?;
        Ok(Self { name, address: address.trim_end_matches('/').to_owned(), http, token: None })
    }

    /// Calls as the bearer of a token.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Returns all items of a collection.
    ///
    /// # Errors
    ///
    /// Returns a failure unless the answer is a success with the items. An answer of 404 is a failure, too.
    pub async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, Failure> {
        let (_, body) = self.call(Method::GET, path, None).await?;
        self.decode(&body)
    }

    /// Returns an item, or `None` if the API says that there is none.
    ///
    /// # Errors
    ///
    /// Returns a failure unless the answer is the item, or a 404 with a JSON body.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        match self.answer(Method::GET, path, None).await? {
            answer if answer.is_missing() => Ok(None),
            answer => self.decode(&self.success(answer)?.1).map(Some),
        }
    }

    /// Sends a POST, and returns the item of the answer.
    ///
    /// # Errors
    ///
    /// Returns a failure unless the answer is a success with an item.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        self.send(Method::POST, path, body).await
    }

    /// Sends a PUT, and returns the item of the answer.
    ///
    /// # Errors
    ///
    /// Returns a failure unless the answer is a success with an item.
    pub async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        self.send(Method::PUT, path, body).await
    }

    /// Sends a PATCH, and returns the item of the answer.
    ///
    /// # Errors
    ///
    /// Returns a failure unless the answer is a success with an item.
    pub async fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        self.send(Method::PATCH, path, body).await
    }

    /// Deletes an item. 202 says that the deletion has begun. A missing item is gone.
    ///
    /// # Errors
    ///
    /// Returns a failure unless the answer is a success, or a 404 with a JSON body.
    pub async fn delete(&self, path: &str) -> Result<Deletion, Failure> {
        match self.answer(Method::DELETE, path, None).await? {
            answer if answer.is_missing() => Ok(Deletion::Gone),
            answer => {
                let (status, _) = self.success(answer)?;
                Ok(if status == StatusCode::ACCEPTED { Deletion::Begun } else { Deletion::Gone })
            }
        }
    }

    async fn send<T: DeserializeOwned>(&self, method: Method, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_string(body).map_err(|error| {
            Failure::permanent("NotJson", format!("cannot make JSON for the {}: {error}", self.name))
        })?;
        let (_, body) = self.call(method, path, Some(body)).await?;
        self.decode(&body)
    }

    async fn call(&self, method: Method, path: &str, body: Option<String>) -> Result<(StatusCode, Vec<u8>), Failure> {
        self.success(self.answer(method, path, body).await?)
    }

    /// Sends a request and reads the answer.
    async fn answer(&self, method: Method, path: &str, body: Option<String>) -> Result<Answer, Failure> {
        let mut request = self.http.request(method, format!("{}/{path}", self.address)).timeout(CALL_WITHIN);
        request = request.header(ACCEPT, JSON);
        if let Some(token) = &self.token {
            let header = token.header().await.map_err(|error| {
                let message = format!("cannot call the {}: {}", self.name, in_one_line(&error));
                Failure::new(ErrorClass::Unavailable(self.name), "ApiUnavailable", message)
            })?;
            request = request.header(AUTHORIZATION, header);
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, JSON).body(body);
        }
        let mut answer = request.send().await.map_err(|error| self.unavailable(error))?;
        let (status, pause) = (answer.status(), retry_after(answer.headers(), SystemTime::now()));
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.unavailable(error))? {
            if body.len() + chunk.len() > LARGEST_ANSWER {
                let message = format!("an answer of the {} is larger than {LARGEST_ANSWER} bytes", self.name);
                return Err(Failure::unavailable(self.name, "ApiUnavailable", message));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, pause, body })
    }

    /// Returns the status and the body of an answer that is a success.
    fn success(&self, answer: Answer) -> Result<(StatusCode, Vec<u8>), Failure> {
        let Answer { status, pause, body } = answer;
        if status.is_success() { Ok((status, body)) } else { Err(failure(self.name, status.as_u16(), pause, &body)) }
    }

    fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, Failure> {
        serde_json::from_slice(body).map_err(|error| {
            let message = format!("an answer of the {} is not the expected JSON: {error}", self.name);
            Failure::unavailable(self.name, "ApiUnavailable", message)
        })
    }

    /// The failure of a call without a complete answer. A request that never had a connection had no effect.
    fn unavailable(&self, error: reqwest::Error) -> Failure {
        let had_connection = !error.is_connect();
        let message = format!("the {} does not answer: {}", self.name, in_one_line(&error.without_url()));
        let failure = Failure::new(ErrorClass::Unavailable(self.name), "ApiUnavailable", message);
        if had_connection { failure.may_have_effect() } else { failure }
    }
}

/// A complete answer.
struct Answer {
    status: StatusCode,
    /// The time of its `Retry-After`.
    pause: Option<Duration>,
    body: Vec<u8>,
}

impl Answer {
    /// Whether the API itself says that there is no such item.
    fn is_missing(&self) -> bool {
        self.status == StatusCode::NOT_FOUND && serde_json::from_slice::<IgnoredAny>(&self.body).is_ok()
    }
}

/// Returns the failure of a call that was answered with this status code.
fn failure(name: &'static str, code: u16, pause: Option<Duration>, body: &[u8]) -> Failure {
    let class = http_status::class(code, pause, Some(name));
    let reason = match class {
        ErrorClass::Unavailable(_) => "ApiUnavailable",
        ErrorClass::After(_) => "ApiBusy",
        ErrorClass::Refused => "ApiRefuses",
        _ if code == 409 => "ApiConflict",
        _ => "ApiFailed",
    };
    let explanation = String::from_utf8_lossy(body);
    let explanation: String =
        explanation.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(EXPLANATION).collect();
    let message = match explanation.as_str() {
        "" => format!("the {name} answers {code}"),
        explanation => format!("the {name} answers {code}: {explanation}"),
    };
    let failure = Failure::new(class, reason, message);
    if code == 408 || code >= 500 { failure.may_have_effect() } else { failure }
}

#[cfg(test)]
mod tests {
    use konverge_core::error::Classify;

    use super::*;

    #[test]
    fn each_failed_answer_has_a_reason_a_class_and_an_effect() {
        let unavailable = ErrorClass::Unavailable("list");
        let pause = Duration::from_secs(7);
        for (code, retry_after, reason, class, may_have_effect) in [
            (302, None, "ApiFailed", ErrorClass::Transient, false),
            (400, None, "ApiRefuses", ErrorClass::Refused, false),
            (401, None, "ApiUnavailable", unavailable, false),
            (403, Some(pause), "ApiRefuses", ErrorClass::Refused, false),
            (404, None, "ApiFailed", ErrorClass::Transient, false),
            (408, None, "ApiFailed", ErrorClass::Transient, true),
            (409, None, "ApiConflict", ErrorClass::Transient, false),
            (429, None, "ApiUnavailable", unavailable, false),
            (429, Some(pause), "ApiBusy", ErrorClass::After(pause), false),
            (500, None, "ApiUnavailable", unavailable, true),
            (503, Some(pause), "ApiBusy", ErrorClass::After(pause), true),
        ] {
            let failure = failure("list", code, retry_after, b"");
            let found = (failure.reason(), failure.class(), failure.may_have_taken_effect());
            assert_eq!(found, (reason, class, may_have_effect), "{code} {retry_after:?}");
            assert_eq!(failure.to_string(), format!("the list answers {code}"));
        }
    }

    #[test]
    fn a_message_has_the_beginning_of_the_explanation_in_one_line() {
        assert_eq!(failure("list", 400, None, b"no\n such\tlabel ").to_string(), "the list answers 400: no such label");
        let long = failure("list", 400, None, "x".repeat(1000).as_bytes()).to_string();
        assert_eq!(long, format!("the list answers 400: {}", "x".repeat(EXPLANATION)));
    }

    #[test]
    fn only_json_says_that_there_is_no_such_item() {
        let answer = |code, body: &str| Answer {
            status: StatusCode::from_u16(code).unwrap(),
            pause: None,
            body: body.as_bytes().to_vec(),
        };
        for (code, body, expected) in [
            (404, r#"{"error": "no such entry"}"#, true),
            (404, "null", true),
            (404, "", false),
            (404, "<html>not found</html>", false),
            (410, "null", false),
            (200, "null", false),
        ] {
            assert_eq!(answer(code, body).is_missing(), expected, "{code} {body:?}");
        }
    }

    #[test]
    fn an_address_is_one_of_http() {
        for address in ["", "list.example.com", "ftp://list.example.com", "http://"] {
            let error = JsonApi::new("list", address).unwrap_err();
            assert!(error.to_string().contains("https://"), "{address}: {error}");
        }
        let api = JsonApi::new("list", "https://list.example.com/v1/").unwrap();
        assert_eq!(api.address, "https://list.example.com/v1");
    }
}

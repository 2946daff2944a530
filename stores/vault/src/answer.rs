//! The meaning of a response. Pure.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use konverge_endpoint::Outcome;
use serde::{Deserialize, de::IgnoredAny};
use zeroize::Zeroizing;

use crate::error::VaultError;

/// No error text of Vault is longer than this here; what is behind it rarely helps.
const LONGEST_CAUSE: usize = 400;

/// If Vault's rate limit does not say when to come back, its usual interval is this.
const QUOTA_INTERVAL: Duration = Duration::from_secs(1);

/// A server that asks for a longer pause has a wrong clock or is not Vault.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// A complete answer. Its body is wiped when it is dropped.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Zeroizing<Vec<u8>>,
    pub(crate) retry_after: Option<Duration>,
    /// Vault's clock, in seconds since 1970, if it told.
    pub(crate) date: Option<i64>,
}

/// The request, as errors describe it.
#[derive(Clone)]
pub(crate) struct RequestDescription {
    /// In words, such as `read secret/data/a`.
    pub(crate) what: String,
    pub(crate) address: Arc<str>,
    /// The capability that a policy must grant for it.
    pub(crate) capability: &'static str,
}

#[derive(Deserialize)]
struct Errors {
    errors: Vec<String>,
}

/// The parts that identify a successful response of Vault. Health responses have neither data nor a request id.
#[derive(Deserialize)]
struct Success {
    request_id: Option<IgnoredAny>,
    data: Option<IgnoredAny>,
    auth: Option<IgnoredAny>,
    initialized: Option<IgnoredAny>,
}

impl Success {
    fn is_vaults(&self) -> bool {
        self.request_id.is_some() || self.data.is_some() || self.auth.is_some() || self.initialized.is_some()
    }
}

/// The parts that Vault puts around each response with a body, also around one that has only warnings.
#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "request_id")]
    _request: String,
    #[serde(rename = "lease_id")]
    _lease: String,
}

/// The parts that identify the response for a deleted version: a 404 with its metadata.
#[derive(Deserialize)]
struct DeletedVersion {
    #[serde(rename = "data")]
    _data: DeletedMetadata,
}

#[derive(Deserialize)]
struct DeletedMetadata {
    #[serde(rename = "metadata")]
    _metadata: IgnoredAny,
}

/// The error texts of Vault's 404 responses, apart from the empty list.
const NOT_FOUND_TEXTS: [&str; 2] = [NO_ROUTE, "unsupported path"];

const NO_ROUTE: &str = "no handler for route";

impl Answer {
    /// Returns the reason why the response cannot be Vault's own, or `None` if it can be. Such a response of a gateway, a login page or
    /// another program says nothing about a secret, a token or a permission.
    ///
    /// Statuses that mean unavailable for any server need no such proof.
    pub(crate) fn foreign(&self) -> Option<String> {
        let status = self.status.as_u16();
        let is_vaults = match status {
            204 => self.body.is_empty(),
            200..=299 => serde_json::from_slice::<Success>(&self.body).is_ok_and(|success| success.is_vaults()),
            300..=399 => return Some(format!("a redirect ({status}) that is not followed")),
            408 | 412 | 413 | 429 | 472 | 473 | 500.. => true,
            404 => match self.errors() {
                Some(errors) if errors.is_empty() => true,
                Some(_) => NOT_FOUND_TEXTS.iter().any(|text| self.cause().contains(text)),
                None => serde_json::from_slice::<DeletedVersion>(&self.body).is_ok(),
            },
            _ => self.errors().is_some(),
        };
        (!is_vaults).then(|| self.unlike_vault())
    }

    /// The message of the body is not repeated, because its author is unknown.
    fn unlike_vault(&self) -> String {
        format!("{} with a body that Vault never sends", self.status.as_u16())
    }

    /// Returns `true` if the response is a success, and Vault's own.
    pub(crate) fn is_success(&self) -> bool {
        self.status.is_success() && self.foreign().is_none()
    }

    /// Returns `true` if the response confirms a change that has no result, such as a write to KV version 1. Vault and OpenBao answer it with 204, or
    /// with an envelope if there are warnings.
    pub(crate) fn is_confirmation(&self) -> bool {
        self.is_success()
            && (self.status == StatusCode::NO_CONTENT || serde_json::from_slice::<Envelope>(&self.body).is_ok())
    }

    /// Returns `true` if Vault says that nothing is mounted at the path.
    pub(crate) fn is_unmounted(&self) -> bool {
        self.status == StatusCode::NOT_FOUND && self.cause().contains(NO_ROUTE)
    }

    /// Returns the messages of Vault. The list is empty for a secret that does not exist. Returns `None` if there is no such list, as for
    /// a deleted version or for a response that did not come from Vault.
    pub(crate) fn errors(&self) -> Option<Vec<String>> {
        serde_json::from_slice::<Errors>(&self.body).ok().map(|answer| answer.errors)
    }

    fn cause(&self) -> String {
        let text = self.errors().unwrap_or_default().join("; ");
        // Lists of errors come with line breaks and stars.
        let words: Vec<_> = text.split_whitespace().filter(|word| *word != "*").collect();
        words.join(" ").chars().take(LONGEST_CAUSE).collect()
    }

    /// Whether it says that the token itself is worth nothing.
    pub(crate) fn is_invalid_token(&self) -> bool {
        self.is_denied() && self.cause().contains("invalid token")
    }

    /// Returns `true` if Vault refuses the token or its permissions.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) && self.errors().is_some()
    }

    /// Whether there is nothing at the path, and it is certain that Vault says so: not that a mount is missing, not a proxy's word.
    pub(crate) fn is_absent(&self) -> bool {
        self.status == StatusCode::NOT_FOUND && self.errors().is_some_and(|errors| errors.is_empty())
    }

    /// Whether it is the request that is too large, in bytes or in names and values. Vault answers such with 500, as if it could not
    /// serve.
    fn is_too_large(&self) -> bool {
        let words = [
            "exceeds allowed",
            "value being too large",
            "request body too large",
            "refused JSON input due to high complexity",
        ];
        matches!(self.status.as_u16(), 400 | 413 | 500) && words.iter().any(|words| self.cause().contains(words))
            || self.status == StatusCode::PAYLOAD_TOO_LARGE
    }

    /// How long it asks to be left alone, within reason.
    fn pause(&self) -> Option<Duration> {
        self.retry_after.map(|pause| pause.min(LONGEST_PAUSE))
    }

    /// The server's state, as this response shows it.
    pub(crate) fn outcome(&self) -> Outcome {
        let cause: Arc<str> = format!("it answered {}", self.status.as_u16()).into();
        match self.status.as_u16() {
            _ if self.is_too_large() => Outcome::Served,
            429 => Outcome::Limited("its rate limit is reached".into(), self.pause().unwrap_or(QUOTA_INTERVAL)),
            503 => match self.pause() {
                Some(pause) => Outcome::Limited(cause, pause),
                None => Outcome::Closed("it is sealed or not available".into()),
            },
            501 => Outcome::Closed("it is not initialised".into()),
            472 | 473 | 500.. => Outcome::Failed(cause),
            _ if self.foreign().is_some() => Outcome::Failed("the answer is not Vault's".into()),
            _ => Outcome::Served,
        }
    }

    /// Returns the error of a response other than the expected [success](Self::is_success) or [confirmation](Self::is_confirmation).
    pub(crate) fn error(&self, description: &RequestDescription) -> VaultError {
        let (what, address) = (description.what.clone(), Arc::clone(&description.address));
        if let Some(cause) = self.foreign().or_else(|| self.status.is_success().then(|| self.unlike_vault())) {
            return VaultError::Garbage { what, address, cause };
        }
        let cause = self.cause();
        let status = self.status.as_u16();
        match status {
            _ if self.is_too_large() => VaultError::TooLarge { what, status, cause },
            401 | 403 => VaultError::Denied { what, capability: description.capability, cause },
            429 => VaultError::Limited { what, retry_after: self.retry_after },
            501 => VaultError::Sealed { what, address },
            503 if self.retry_after.is_none() && (cause.is_empty() || cause.contains("sealed")) => {
                VaultError::Sealed { what, address }
            }
            408 | 412 | 472 | 473 | 500.. => {
                let cause = if cause.is_empty() { in_words(status).to_owned() } else { cause };
                VaultError::Unavailable { what, address, status, cause, retry_after: self.retry_after }
            }
            404 if cause.contains(NO_ROUTE) => VaultError::NoMount { what },
            // "did not", and of metadata "does not".
            400 if cause.contains("not match the current version") => VaultError::Conflict { what },
            400 if cause.contains("check-and-set parameter required") => VaultError::CheckAndSetRequired { what },
            // A mount of version 2 upgrades itself for some seconds after it was made.
            400 if cause.contains("Upgrading from non-versioned") => {
                VaultError::Unavailable { what, address, status, cause, retry_after: None }
            }
            _ => VaultError::Rejected { what, status, cause },
        }
    }

    /// Reads the body of a success. Nothing of it is in the error.
    pub(crate) fn parse<'a, T: Deserialize<'a>>(&'a self, description: &RequestDescription) -> Result<T, VaultError> {
        serde_json::from_slice(&self.body).map_err(|error| VaultError::Garbage {
            what: description.what.clone(),
            address: Arc::clone(&description.address),
            cause: format!("its JSON is not as expected at line {} column {}", error.line(), error.column()),
        })
    }
}

fn in_words(status: u16) -> &'static str {
    match status {
        412 => "it has not caught up with what was written",
        472 => "it is a standby for disaster recovery",
        473 => "it is a performance standby that cannot serve this",
        _ => "it did not say why",
    }
}

#[cfg(test)]
mod tests {
    use konverge_core::error::{Classify, ErrorClass};

    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, body: body.as_bytes().to_vec().into(), retry_after: None, date: None }
    }

    fn description() -> RequestDescription {
        RequestDescription { what: "read kv/data/a".to_owned(), address: "http://vault".into(), capability: "read" }
    }

    #[test]
    fn statuses() {
        let after = |seconds| ErrorClass::After(Duration::from_secs(seconds));
        let (transient, permanent) = (ErrorClass::Transient, ErrorClass::Permanent);
        for (status, body, reason, class) in [
            (403, r#"{"errors":["1 error occurred:\n\t* permission denied\n\n"]}"#, "PermissionDenied", after(30)),
            (429, "{}", "VaultRateLimited", transient),
            (503, r#"{"errors":["Vault is sealed"]}"#, "VaultSealed", transient),
            (503, r#"{"errors":["maintenance"]}"#, "VaultUnavailable", transient),
            (501, "", "VaultSealed", transient),
            (473, "", "VaultUnavailable", transient),
            (472, "", "VaultUnavailable", transient),
            (412, r#"{"errors":["required index state not present"]}"#, "VaultUnavailable", transient),
            (500, r#"{"errors":["local node not active"]}"#, "VaultUnavailable", transient),
            (502, "<html>", "VaultUnavailable", transient),
            (404, "<html>", "InvalidAnswer", transient),
            (404, r#"{"errors":["not found"]}"#, "InvalidAnswer", transient),
            (404, r#"{"errors":["1 error occurred:\n\t* unsupported path\n\n"]}"#, "VaultRejected", permanent),
            (403, "<html>", "InvalidAnswer", transient),
            (
                404,
                r#"{"errors":["no handler for route \"kv/data/a\". route entry not found."]}"#,
                "MountMissing",
                after(30),
            ),
            (
                400,
                r#"{"errors":["check-and-set parameter did not match the current version"]}"#,
                "VersionConflict",
                transient,
            ),
            (
                400,
                r#"{"errors":["metadata check-and-set parameter does not match the current version"]}"#,
                "VersionConflict",
                transient,
            ),
            (400, r#"{"errors":["check-and-set parameter required for this call"]}"#, "CheckAndSetRequired", permanent),
            (400, r#"{"errors":["no data provided"]}"#, "VaultRejected", permanent),
            (500, r#"{"errors":["JSON string value exceeds allowed length"]}"#, "TooLargeForVault", permanent),
            (500, r#"{"errors":["put failed due to value being too large"]}"#, "TooLargeForVault", permanent),
            (413, "", "TooLargeForVault", permanent),
            (
                400,
                r#"{"errors":["refused JSON input due to high complexity: exceeded maximum number of strings"]}"#,
                "TooLargeForVault",
                permanent,
            ),
            (307, "", "InvalidAnswer", transient),
        ] {
            let error = answer(status, body).error(&description());
            assert_eq!((error.reason(), error.class()), (reason, class), "{status} {body}: {error}");
        }
    }

    #[test]
    fn only_vault_itself_says_that_something_is_not_there() {
        assert!(answer(404, r#"{"errors":[]}"#).is_absent());
        for (status, body) in [
            (404, "<html>"),
            (404, ""),
            (404, r#"{"data":{"data":null,"metadata":{"version":1}}}"#),
            (404, r#"{"errors":["no handler"]}"#),
            (200, r#"{"errors":[]}"#),
        ] {
            assert!(!answer(status, body).is_absent(), "{status} {body}");
        }
    }

    #[test]
    fn only_vaults_own_answer_confirms_a_change_without_a_result() {
        let warned =
            r#"{"request_id":"x","lease_id":"","renewable":false,"lease_duration":0,"data":null,"warnings":["w"]}"#;
        for (status, body, expected) in [
            (204, "", true),
            (200, warned, true),
            (204, "{}", false),
            (200, "", false),
            (200, "{}", false),
            (200, "<html>", false),
            (200, r#"{"data":{}}"#, false),
            (200, r#"{"request_id":"x","data":{}}"#, false),
            (200, r#"{"initialized":true}"#, false),
            (404, r#"{"errors":[]}"#, false),
            (500, warned, false),
        ] {
            assert_eq!(answer(status, body).is_confirmation(), expected, "{status} {body}");
        }
        assert_eq!(answer(200, r#"{"data":{}}"#).error(&description()).reason(), "InvalidAnswer");
    }

    #[test]
    fn what_an_answer_says_about_the_server() {
        let limited = Answer { retry_after: Some(Duration::from_secs(7)), ..answer(429, "") };
        assert!(matches!(limited.outcome(), Outcome::Limited(_, pause) if pause == Duration::from_secs(7)));
        assert!(matches!(answer(503, "").outcome(), Outcome::Closed(_)));
        assert!(matches!(answer(500, "").outcome(), Outcome::Failed(_)));
        let too_large = answer(500, r#"{"errors":["JSON string value exceeds allowed length"]}"#);
        assert!(matches!(too_large.outcome(), Outcome::Served), "the server is well");
        for (status, body) in [
            (200, r#"{"request_id":"x","data":{}}"#),
            (204, ""),
            (400, r#"{"errors":["no data provided"]}"#),
            (403, r#"{"errors":["permission denied"]}"#),
            (404, r#"{"errors":[]}"#),
            (404, r#"{"data":{"data":null,"metadata":{"version":1}}}"#),
            (412, ""),
        ] {
            assert_eq!(answer(status, body).outcome(), Outcome::Served, "{status} {body}");
        }
        for (status, body) in [(200, "<html>"), (302, ""), (403, ""), (404, r#"{"errors":["not found"]}"#)] {
            assert!(matches!(answer(status, body).outcome(), Outcome::Failed(_)), "{status} {body}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_told() {
        let error = answer(200, r#"{"errors":"hunter2"}"#).parse::<Errors>(&description()).err().unwrap().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

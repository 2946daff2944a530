//! What went wrong with a write, and when to try again.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use konverge_core::error::{Classify, ErrorClass};

/// Why a write did not happen. Never contains what was to be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// A name that cannot be part of a request.
    #[error("cannot make a request for secret {namespace}/{name}")]
    Request {
        /// Namespace of the object.
        namespace: String,
        /// Name of the object.
        name: String,
        /// What the client said.
        #[source]
        source: kube::core::request::Error,
    },
    /// The API server did not answer. Whether the write happened is unknown; repeating it is safe.
    #[error("the API server did not answer for secret {namespace}/{name}")]
    Transport {
        /// Namespace of the object.
        namespace: String,
        /// Name of the object.
        name: String,
        /// What the client said.
        #[source]
        source: kube::Error,
    },
    /// The API server refused.
    #[error("the API server refused to write secret {namespace}/{name}: {code} {status_reason}: {message}")]
    Refused {
        /// Namespace of the object.
        namespace: String,
        /// Name of the object.
        name: String,
        /// HTTP status code.
        code: u16,
        /// The server's one-word reason, such as `Forbidden`.
        status_reason: String,
        /// The server's explanation, cut to 512 bytes.
        message: String,
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The answer was not what the API promises. Whether the write happened is unknown; repeating it is safe.
    #[error("cannot read the API server's answer for secret {namespace}/{name}")]
    Answer {
        /// Namespace of the object.
        namespace: String,
        /// Name of the object.
        name: String,
        /// What the decoder said.
        #[source]
        source: serde_json::Error,
    },
}

impl ApplyError {
    /// Whether it was refused because the Secret is marked `immutable`: only replacing the Secret helps.
    pub fn is_immutable(&self) -> bool {
        matches!(self, Self::Refused { code: 422, message, .. } if message.contains("immutable"))
    }
}

impl Classify for ApplyError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Transport { .. } | Self::Answer { .. } => ErrorClass::Transient,
            Self::Refused { retry_after: Some(delay), code, .. } if is_transient(*code) => ErrorClass::After(*delay),
            Self::Refused { code, .. } if is_transient(*code) => ErrorClass::Transient,
            Self::Request { .. } | Self::Refused { .. } => ErrorClass::Permanent,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Request { .. } => "InvalidName",
            Self::Transport { .. } => "ApiServerUnreachable",
            Self::Answer { .. } => "ApiServerAnswerUnreadable",
            Self::Refused { .. } if self.is_immutable() => "SecretImmutable",
            Self::Refused { code: 401, .. } => "ApiServerUnauthorized",
            Self::Refused { code: 403, .. } => "Forbidden",
            Self::Refused { code: 409, .. } => "Conflict",
            Self::Refused { code: 413, .. } => "SecretTooLarge",
            Self::Refused { code: 429, .. } => "ApiServerBusy",
            Self::Refused { code, .. } if *code >= 500 => "ApiServerFailing",
            Self::Refused { .. } => "SecretRejected",
        }
    }
}

/// Codes that may go away without anybody changing the object. 401 is among them because tokens rotate, and 403 because an API server
/// that has just started answers so until it has read the roles.
fn is_transient(code: u16) -> bool {
    matches!(code, 401 | 403 | 408 | 409 | 429) || code >= 500
}

/// The refusal that an answer carries.
pub(crate) fn refusal(namespace: &str, name: &str, code: StatusCode, headers: &HeaderMap, body: &[u8]) -> ApplyError {
    // A proxy in between answers in its own words, which say nothing that the code does not.
    let status: kube::core::Status = serde_json::from_slice(body).unwrap_or_default();
    let mut message = status.message;
    message.truncate(message.floor_char_boundary(512));
    ApplyError::Refused {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        code: code.as_u16(),
        status_reason: status.reason,
        message,
        retry_after: retry_after(headers),
    }
}

/// `Retry-After` in whole seconds, the only form that the API server uses.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn refused(code: u16, message: &str, retry_after: Option<&'static str>) -> ApplyError {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
        }
        let body = serde_json::json!({"kind": "Status", "status": "Failure", "message": message, "reason": "Some", "code": code});
        refusal("shop", "db", StatusCode::from_u16(code).expect("a status code"), &headers, body.to_string().as_bytes())
    }

    #[test]
    fn codes_have_their_class_and_reason() {
        let table = [
            (400, "", None, ErrorClass::Permanent, "SecretRejected"),
            (401, "", None, ErrorClass::Transient, "ApiServerUnauthorized"),
            (403, "", None, ErrorClass::Transient, "Forbidden"),
            (409, "", None, ErrorClass::Transient, "Conflict"),
            (413, "", None, ErrorClass::Permanent, "SecretTooLarge"),
            (422, "bad key", None, ErrorClass::Permanent, "SecretRejected"),
            (422, "field is immutable when `immutable` is set", None, ErrorClass::Permanent, "SecretImmutable"),
            (429, "", Some("7"), ErrorClass::After(Duration::from_secs(7)), "ApiServerBusy"),
            (429, "", Some("soon"), ErrorClass::Transient, "ApiServerBusy"),
            (500, "", None, ErrorClass::Transient, "ApiServerFailing"),
            (503, "", Some("1"), ErrorClass::After(Duration::from_secs(1)), "ApiServerFailing"),
        ];
        for (code, message, retry_after, class, reason) in table {
            let error = refused(code, message, retry_after);
            assert_eq!((error.class(), error.reason()), (class, reason), "{code} {message}");
        }
    }

    #[test]
    fn an_answer_that_is_no_status_keeps_its_code() {
        let error = refusal("shop", "db", StatusCode::BAD_GATEWAY, &HeaderMap::new(), b"<html>");
        assert_eq!((error.class(), error.reason()), (ErrorClass::Transient, "ApiServerFailing"));
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let ApplyError::Refused { message, .. } = refused(422, &"ä".repeat(400), None) else { panic!("refused") };
        assert_eq!(message.len(), 512);
        let ApplyError::Refused { message, .. } = refused(422, &format!("x{}", "ä".repeat(400)), None) else {
            panic!("refused")
        };
        assert_eq!(message.len(), 511);
    }
}

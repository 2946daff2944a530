//! The errors of a write, and when to retry.

use std::{fmt, time::Duration};

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use konverge_core::{
    api_server,
    error::{Classify, ErrorClass},
    reasons,
};

use crate::{altered::AlteredField, object_name::ObjectName};

/// Why a write did not happen. Never contains what was to be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The object lacks what every request needs. Nothing was sent.
    #[error("cannot write {kind} {name:?}: {field} is not set")]
    MissingField {
        /// Kind of the object.
        kind: String,
        /// Its name, if it has one.
        name: String,
        /// The field.
        field: &'static str,
    },
    /// The object has no form in JSON. Nothing was sent.
    #[error("cannot write {kind} {name:?} as JSON")]
    Encode {
        /// Kind of the object.
        kind: String,
        /// Its name, if it has one.
        name: String,
        /// The error of the encoder.
        #[source]
        source: serde_json::Error,
    },
    /// A name that cannot be part of a request. Nothing was sent.
    #[error("cannot make a request for {object}")]
    Request {
        /// The object.
        object: Box<ObjectName>,
        /// The error of the client.
        #[source]
        source: kube::core::request::Error,
    },
    /// The API server did not answer. Whether the write happened is unknown; repeating it is safe.
    #[error("the API server did not answer for {object}")]
    Transport {
        /// The object.
        object: Box<ObjectName>,
        /// The error of the client.
        #[source]
        source: kube::Error,
    },
    /// The API server refused.
    #[error("the API server refused to write {object}: {code} {status_reason}: {message}")]
    Refused {
        /// The object.
        object: Box<ObjectName>,
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
    #[error("cannot read the API server's answer for {object}")]
    Answer {
        /// The object.
        object: Box<ObjectName>,
        /// The error of the decoder.
        #[source]
        source: serde_json::Error,
    },
    /// The object that the caller saw is deleted, or deleted and made anew. Look again.
    #[error("{object} was deleted or made anew since it was seen")]
    Gone {
        /// The object.
        object: Box<ObjectName>,
    },
    /// Somebody wrote since the caller looked, and the write depended on what was seen. Nothing was written; look again.
    #[error("{object} has changed since it was seen; nothing was written")]
    OutOfDate {
        /// The object.
        object: Box<ObjectName>,
    },
    /// Others own fields that were to be written, and taking them over was not asked for. Nothing was written.
    #[error(
        "others manage fields of {object}: {}; let them give these up, or take them over with force",
        Conflicts(conflicts)
    )]
    Conflict {
        /// The object.
        object: Box<ObjectName>,
        /// The owners and their fields.
        conflicts: Vec<FieldConflict>,
    },
    /// The API server stored other values than were sent: an admission policy or webhook changed them. The rest was written.
    #[error(
        "{object} is not as it was sent: {} changed by an admission policy or webhook, or by another manager; exempt the object from \
         it, or make both want the same value",
        Listed(fields)
    )]
    Altered {
        /// The object.
        object: Box<ObjectName>,
        /// The fields. Never empty.
        fields: Vec<AlteredField>,
        /// The resource version of the object after the write.
        resource_version: String,
    },
    /// The object is being deleted, and what was asked makes no sense for it any more. Nothing was sent.
    #[error("{object} is being deleted")]
    Terminating {
        /// The object.
        object: Box<ObjectName>,
    },
    /// The object is somebody else's child. Nothing was written.
    #[error(
        "{object} belongs to the owner with uid {owner}; choose another name, or delete what is not wanted any more"
    )]
    OwnedByAnother {
        /// The object.
        object: Box<ObjectName>,
        /// Uid of its owner.
        owner: String,
    },
    /// Two children of one set have the same name. Nothing was written.
    #[error("{object} is wanted twice with different content by one owner; leave one out or rename it")]
    WantedTwice {
        /// The object.
        object: Box<ObjectName>,
    },
    /// The order of the children of a set cannot be kept. Nothing was written.
    #[error("{object} cannot be written: {problem}")]
    ChildOrder {
        /// A child that waits for others.
        object: Box<ObjectName>,
        /// The reason, and the next step.
        problem: String,
    },
    /// A finalizer needs a name like `example.com/cleanup`. Nothing was sent.
    #[error("{finalizer:?} is no name for a finalizer of {object}; it has to look like example.com/cleanup")]
    InvalidFinalizer {
        /// The object.
        object: Box<ObjectName>,
        /// The name.
        finalizer: String,
    },
}

/// A field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldConflict {
    /// The field, as the API server names it: `.data.key`.
    pub field: String,
    /// The owner, in the API server's words: `conflict with "kubectl" using v1`.
    pub with: String,
}

/// Fields that were changed, so many that a sentence stays readable, with the verb that follows them.
struct Listed<'a>(&'a [AlteredField]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        let shown: Vec<String> = self.0.iter().take(SHOWN).map(ToString::to_string).collect();
        out.write_str(&shown.join(", "))?;
        match self.0.len() {
            1 => out.write_str(" was"),
            2..=SHOWN => out.write_str(" were"),
            more => write!(out, " and {} more were", more.saturating_sub(SHOWN)),
        }
    }
}

/// Fields with their owners, so many that a sentence stays readable.
struct Conflicts<'a>(&'a [FieldConflict]);

impl fmt::Display for Conflicts<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        for (position, conflict) in self.0.iter().take(SHOWN).enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(out, "{separator}{} ({})", conflict.field, conflict.with)?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(out, " and {more} more"),
        }
    }
}

impl ApplyError {
    /// Whether it was refused because the object is marked `immutable`, or a field of it cannot change: only replacing it helps.
    pub fn is_immutable(&self) -> bool {
        matches!(self, Self::Refused { code: 422, message, .. } if message.contains("immutable"))
    }

    fn is_about_a_secret(&self) -> bool {
        matches!(self, Self::Refused { object, .. } if object.kind == "Secret")
    }

    /// The reason of a refusal that somebody has to mend.
    fn rejection(&self) -> &'static str {
        let secret = self.is_about_a_secret();
        match self {
            _ if self.is_immutable() && secret => reasons::SECRET_IMMUTABLE,
            _ if self.is_immutable() => reasons::IMMUTABLE,
            Self::Refused { code: 413, .. } if secret => reasons::SECRET_TOO_LARGE,
            Self::Refused { code: 413, .. } => reasons::TOO_LARGE,
            _ if secret => reasons::SECRET_REJECTED,
            _ => reasons::REJECTED,
        }
    }
}

impl Classify for ApplyError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Transport { source, .. } => class_of(source),
            Self::Refused { retry_after, code, .. } => api_server::class(*code, *retry_after),
            Self::Answer { .. } | Self::Gone { .. } | Self::OutOfDate { .. }
            // The other owner may let go, which nothing tells us.
            | Self::OwnedByAnother { .. } => ErrorClass::Transient,
            // Nothing tells when the policy goes.
            Self::Altered { .. } => ErrorClass::Refused,
            Self::MissingField { .. }
            | Self::Encode { .. }
            | Self::Request { .. }
            | Self::Conflict { .. }
            | Self::Terminating { .. }
            | Self::WantedTwice { .. }
            | Self::ChildOrder { .. }
            | Self::InvalidFinalizer { .. } => ErrorClass::Permanent,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::MissingField { .. } => reasons::MISSING_FIELD,
            Self::Encode { .. } => reasons::NOT_ENCODABLE,
            Self::Request { .. } => reasons::INVALID_NAME,
            Self::Transport { .. } => reasons::API_SERVER_UNREACHABLE,
            Self::Answer { .. } => reasons::API_SERVER_ANSWER_UNREADABLE,
            Self::Gone { .. } => reasons::GONE,
            Self::Conflict { .. } => reasons::FIELD_CONFLICT,
            Self::Altered { .. } => reasons::ALTERED_BY_ADMISSION,
            Self::Terminating { .. } => reasons::TERMINATING,
            Self::OwnedByAnother { .. } => reasons::OWNED_BY_ANOTHER,
            Self::WantedTwice { .. } => reasons::WANTED_TWICE,
            Self::ChildOrder { .. } => reasons::CHILD_ORDER,
            Self::InvalidFinalizer { .. } => reasons::INVALID_FINALIZER,
            Self::Refused { code: 401, .. } => reasons::API_SERVER_UNAUTHORIZED,
            Self::Refused { code: 403, .. } => reasons::FORBIDDEN,
            Self::Refused { code: 404, .. } => reasons::NOT_FOUND,
            Self::OutOfDate { .. } | Self::Refused { code: 409, .. } => reasons::CONFLICT,
            Self::Refused { code: 429, .. } => reasons::API_SERVER_BUSY,
            Self::Refused { code, .. } if *code >= 500 => reasons::API_SERVER_FAILING,
            Self::Refused { .. } => self.rejection(),
        }
    }
}

/// Returns the class of an error of the client: that of the API server's answer (see [`api_server::class`]), or without an answer that the API
/// server cannot be reached.
pub fn class_of(error: &kube::Error) -> ErrorClass {
    match error {
        kube::Error::Api(status) => {
            let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
            api_server::class(status.code, retry_after)
        }
        kube::Error::Service(_)
        | kube::Error::HyperError(_)
        | kube::Error::ReadEvents(_)
        // The token of the process cannot be had.
        | kube::Error::Auth(_) => ErrorClass::Unavailable(api_server::ENDPOINT),
        // A name that cannot be part of a request.
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => ErrorClass::Permanent,
        _ => ErrorClass::Transient,
    }
}

/// The refusal that an answer carries.
pub(crate) fn refusal(object: &ObjectName, code: StatusCode, headers: &HeaderMap, body: &[u8]) -> ApplyError {
    // A proxy in between answers in its own words, which say nothing that the code does not.
    let status: kube::core::Status = serde_json::from_slice(body).unwrap_or_default();
    let conflicts = field_conflicts(&status);
    if code == StatusCode::CONFLICT && !conflicts.is_empty() {
        return ApplyError::Conflict { object: Box::new(object.clone()), conflicts };
    }
    let mut message = status.message;
    message.truncate(konverge_core::names::floor_char_boundary(&message, 512));
    ApplyError::Refused {
        object: Box::new(object.clone()),
        code: code.as_u16(),
        status_reason: status.reason,
        message,
        retry_after: headers.get(RETRY_AFTER).and_then(|pause| api_server::retry_after(pause.to_str().ok()?)),
    }
}

fn field_conflicts(status: &kube::core::Status) -> Vec<FieldConflict> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| FieldConflict { field: cause.field.clone(), with: cause.message.clone() })
        .collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn object(kind: &str) -> ObjectName {
        ObjectName { kind: kind.to_owned(), namespace: Some("shop".to_owned()), name: "db".to_owned() }
    }

    fn refused(kind: &str, code: u16, message: &str, retry_after: Option<&'static str>) -> ApplyError {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
        }
        let body = serde_json::json!({"kind": "Status", "status": "Failure", "message": message, "reason": "Some", "code": code});
        let code = StatusCode::from_u16(code).expect("a status code");
        refusal(&object(kind), code, &headers, body.to_string().as_bytes())
    }

    #[test]
    fn codes_have_their_class_and_reason() {
        let unavailable = ErrorClass::Unavailable(api_server::ENDPOINT);
        let table = [
            (400, "", None, ErrorClass::Refused, "SecretRejected", "Rejected"),
            (401, "", None, unavailable, "ApiServerUnauthorized", "ApiServerUnauthorized"),
            (403, "", None, ErrorClass::Refused, "Forbidden", "Forbidden"),
            (404, "", None, ErrorClass::Transient, "NotFound", "NotFound"),
            (409, "", None, ErrorClass::Transient, "Conflict", "Conflict"),
            (413, "", None, ErrorClass::Refused, "SecretTooLarge", "TooLarge"),
            (422, "bad key", None, ErrorClass::Refused, "SecretRejected", "Rejected"),
            (
                422,
                "field is immutable when `immutable` is set",
                None,
                ErrorClass::Refused,
                "SecretImmutable",
                "Immutable",
            ),
            (429, "", Some("7"), ErrorClass::After(Duration::from_secs(7)), "ApiServerBusy", "ApiServerBusy"),
            (429, "", Some("soon"), unavailable, "ApiServerBusy", "ApiServerBusy"),
            (500, "", None, unavailable, "ApiServerFailing", "ApiServerFailing"),
            (503, "", Some("1"), ErrorClass::After(Duration::from_secs(1)), "ApiServerFailing", "ApiServerFailing"),
        ];
        for (code, message, retry_after, class, for_secrets, for_others) in table {
            let error = refused("Secret", code, message, retry_after);
            assert_eq!((error.class(), error.reason()), (class, for_secrets), "{code} {message}");
            let error = refused("ConfigMap", code, message, retry_after);
            assert_eq!((error.class(), error.reason()), (class, for_others), "{code} {message}");
        }
    }

    #[test]
    fn errors_of_the_client_have_the_class_of_the_answer_or_of_its_absence() {
        let unavailable = ErrorClass::Unavailable(api_server::ENDPOINT);
        let answer = |code, retry_after_seconds| {
            let details = serde_json::json!({ "code": code, "details": { "retryAfterSeconds": retry_after_seconds } });
            kube::Error::Api(Box::new(serde_json::from_value(details).expect("a status")))
        };
        let unreadable = serde_json::from_str::<u8>("?").expect_err("no JSON");
        for (error, expected) in [
            (answer(403, 0), ErrorClass::Refused),
            (answer(422, 0), ErrorClass::Refused),
            (answer(409, 0), ErrorClass::Transient),
            (answer(503, 0), unavailable),
            (answer(429, 60), ErrorClass::After(Duration::from_secs(60))),
            (kube::Error::Service("connection refused".into()), unavailable),
            (kube::Error::ReadEvents(std::io::ErrorKind::UnexpectedEof.into()), unavailable),
            (
                kube::Error::BuildRequest(kube::core::request::Error::Validation("no name".into())),
                ErrorClass::Permanent,
            ),
            (kube::Error::SerdeError(unreadable), ErrorClass::Transient),
        ] {
            assert_eq!(class_of(&error), expected, "{error}");
        }
    }

    #[test]
    fn an_answer_that_is_no_status_keeps_its_code() {
        let error = refusal(&object("Secret"), StatusCode::BAD_GATEWAY, &HeaderMap::new(), b"<html>");
        assert_eq!(
            (error.class(), error.reason()),
            (ErrorClass::Unavailable(api_server::ENDPOINT), "ApiServerFailing")
        );
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let cut = |message: &str| match refused("Secret", 422, message, None) {
            ApplyError::Refused { message, .. } => message.len(),
            other => panic!("not refused: {other}"),
        };
        assert_eq!(cut(&"ä".repeat(400)), 512);
        assert_eq!(cut(&format!("x{}", "ä".repeat(400))), 511);
    }

    #[test]
    fn conflicts_name_fields_and_managers_and_stay_readable() {
        let causes: Vec<_> = (0..7)
            .map(|number| {
                serde_json::json!({
                    "reason": "FieldManagerConflict", "field": format!(".data.k{number}"), "message": "conflict with \"kubectl\""
                })
            })
            .collect();
        let body = serde_json::json!({"status": "Failure", "code": 409, "details": {"causes": causes}}).to_string();
        let error = refusal(&object("ConfigMap"), StatusCode::CONFLICT, &HeaderMap::new(), body.as_bytes());
        assert_eq!((error.class(), error.reason()), (ErrorClass::Permanent, "FieldConflict"));
        let text = error.to_string();
        assert!(text.contains("ConfigMap shop/db: .data.k0 (conflict with \"kubectl\"), .data.k1"), "{text}");
        assert!(text.contains("and 2 more") && !text.contains("k5"), "{text}");
    }
}

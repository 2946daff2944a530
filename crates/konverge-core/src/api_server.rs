//! How the answers of the Kubernetes API server are classified: one table for every crate and operator.
//!
//! An answer is a status code and perhaps a `Retry-After`. The classes decide about the next attempt; see [`ErrorClass`].

use std::time::Duration;

use crate::error::ErrorClass;

/// The name of the API server as an endpoint, for [`ErrorClass::Unavailable`].
pub const ENDPOINT: &str = "API server";

/// The longest `Retry-After` that is followed. A longer one comes from a broken clock or from a proxy.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Returns the pause that a `Retry-After` asks for, in whole seconds: the API server uses no other form.
pub fn retry_after(header: &str) -> Option<Duration> {
    header.parse().ok().map(Duration::from_secs)
}

/// Returns the class of an answer that is no success.
///
/// 403 is a refusal: a role, a quota or a policy may be mended at any time, and an API server that has just started answers 403 until it has
/// read the roles. Both are noticed soon, because the pauses after refusals begin at a second. 401 concerns every request of the process, so
/// one object finds out when the token is accepted again. 404 and 409 end without anybody's help: a namespace or a kind may come, and the next
/// run reads the newer version.
pub fn class(code: u16, retry_after: Option<Duration>) -> ErrorClass {
    match (code, retry_after) {
        (429 | 500.., Some(pause)) => ErrorClass::After(pause.min(LONGEST_PAUSE)),
        (401 | 429 | 500.., _) => ErrorClass::Unavailable(ENDPOINT),
        (400 | 402 | 403 | 405 | 406 | 411 | 413..=428 | 430..=499, _) => ErrorClass::Refused,
        _ => ErrorClass::Transient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_of_the_api_server_has_one_class() {
        let unavailable = ErrorClass::Unavailable(ENDPOINT);
        let seconds = Duration::from_secs;
        for (code, retry_after, expected) in [
            // The object, or the operator's permission for it, is at fault.
            (400, None, ErrorClass::Refused),
            (403, None, ErrorClass::Refused),
            (405, None, ErrorClass::Refused),
            (406, None, ErrorClass::Refused),
            (413, None, ErrorClass::Refused),
            (415, None, ErrorClass::Refused),
            (422, None, ErrorClass::Refused),
            (451, None, ErrorClass::Refused),
            // A Retry-After on a refusal is not the API server's, and changes nothing.
            (403, Some(1), ErrorClass::Refused),
            // The world has moved on, or is about to.
            (404, None, ErrorClass::Transient),
            (408, None, ErrorClass::Transient),
            (409, None, ErrorClass::Transient),
            (410, None, ErrorClass::Transient),
            (412, None, ErrorClass::Transient),
            // No code of an error at all: a proxy in between.
            (0, None, ErrorClass::Transient),
            (302, None, ErrorClass::Transient),
            // The API server is the trouble, whatever the object.
            (401, None, unavailable),
            (429, None, unavailable),
            (500, None, unavailable),
            (502, None, unavailable),
            (503, None, unavailable),
            (504, None, unavailable),
            (599, None, unavailable),
            // It says when to come back.
            (429, Some(60), ErrorClass::After(seconds(60))),
            (503, Some(1), ErrorClass::After(seconds(1))),
            (429, Some(86_400), ErrorClass::After(LONGEST_PAUSE)),
        ] {
            assert_eq!(class(code, retry_after.map(seconds)), expected, "{code} {retry_after:?}");
        }
    }
}

//! The class of an HTTP answer by its status code: one table for the API server and for every other HTTP endpoint.

use std::time::Duration;

use crate::error::ErrorClass;

/// Returns the class of an answer that is no success.
///
/// `endpoint` names the server for [`ErrorClass::Unavailable`]. Without a name, an answer that concerns every request is
/// [`ErrorClass::Transient`].
///
/// 403 is a refusal: somebody may mend a role, a policy or a quota at any time. A 401 concerns every request of the process, so one caller
/// finds out when the credential is accepted again. The statuses 404 and 409 end without anybody's help: the thing may come, and the next
/// attempt reads the newer version. `Retry-After` counts only where the server is busy or fails.
pub fn class(code: u16, retry_after: Option<Duration>, endpoint: Option<&'static str>) -> ErrorClass {
    match (code, retry_after) {
        (429 | 500.., Some(pause)) => ErrorClass::After(pause),
        (401 | 429 | 500.., _) => endpoint.map_or(ErrorClass::Transient, ErrorClass::Unavailable),
        (400 | 402 | 403 | 405 | 406 | 411 | 413..=420 | 422..=424 | 426..=428 | 430..=499, _) => ErrorClass::Refused,
        _ => ErrorClass::Transient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_one_class() {
        const ENDPOINT: &str = "store";
        let unavailable = ErrorClass::Unavailable(ENDPOINT);
        let seconds = Duration::from_secs;
        for (code, retry_after, expected) in [
            // The request, or the permission for it, is at fault.
            (400, None, ErrorClass::Refused),
            (403, None, ErrorClass::Refused),
            (405, None, ErrorClass::Refused),
            (406, None, ErrorClass::Refused),
            (413, None, ErrorClass::Refused),
            (415, None, ErrorClass::Refused),
            (422, None, ErrorClass::Refused),
            (451, None, ErrorClass::Refused),
            // A Retry-After on a refusal changes nothing.
            (403, Some(1), ErrorClass::Refused),
            // The world has moved on, or is about to.
            (404, None, ErrorClass::Transient),
            (408, None, ErrorClass::Transient),
            (409, None, ErrorClass::Transient),
            (410, None, ErrorClass::Transient),
            (412, None, ErrorClass::Transient),
            // Another connection, or the next moment, may do.
            (421, None, ErrorClass::Transient),
            (425, None, ErrorClass::Transient),
            // No code of an error at all: a proxy in between.
            (0, None, ErrorClass::Transient),
            (302, None, ErrorClass::Transient),
            // The server is the trouble, whatever the request.
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
        ] {
            let retry_after = retry_after.map(seconds);
            assert_eq!(class(code, retry_after, Some(ENDPOINT)), expected, "{code} {retry_after:?}");
            let unnamed = if expected == unavailable { ErrorClass::Transient } else { expected };
            assert_eq!(class(code, retry_after, None), unnamed, "{code} {retry_after:?} of a server without a name");
        }
    }
}

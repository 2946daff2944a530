//! The class of each answer of the Kubernetes API server, for every crate and operator.
//!
//! An answer is a status code and perhaps a `Retry-After`. The classes decide about the next attempt; see [`ErrorClass`].

use std::time::Duration;

use crate::{error::ErrorClass, http_status};

/// The name of the API server as an endpoint, for [`ErrorClass::Unavailable`].
pub const ENDPOINT: &str = "API server";

/// The longest `Retry-After` that is followed. A longer one comes from a broken clock or from a proxy.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Returns the pause that a `Retry-After` asks for, in whole seconds: the API server uses no other form.
pub fn retry_after(header: &str) -> Option<Duration> {
    header.parse().ok().map(Duration::from_secs)
}

/// Returns the class of an answer that is no success, by the table of [`http_status::class`]. A pause of more than ten minutes counts as ten.
///
/// An API server that has just started answers 403 until it has read the roles. That is noticed soon, because the pauses after refusals begin
/// at a second.
pub fn class(code: u16, retry_after: Option<Duration>) -> ErrorClass {
    http_status::class(code, retry_after.map(|pause| pause.min(LONGEST_PAUSE)), Some(ENDPOINT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_server_has_the_classes_of_every_http_endpoint_and_no_pause_of_days() {
        let seconds = Duration::from_secs;
        for (code, retry_after, expected) in [
            (403, None, ErrorClass::Refused),
            (404, None, ErrorClass::Transient),
            (503, None, ErrorClass::Unavailable(ENDPOINT)),
            (429, Some(60), ErrorClass::After(seconds(60))),
            (429, Some(86_400), ErrorClass::After(LONGEST_PAUSE)),
        ] {
            assert_eq!(class(code, retry_after.map(seconds)), expected, "{code} {retry_after:?}");
        }
    }
}

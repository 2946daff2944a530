//! The `Retry-After` header (RFC 9110, section 10.2.3). Pure: the time is handed in.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};

/// Returns how long the headers ask to be left alone, or `None` if they do not say so in a known form.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    parse(headers.get(header::RETRY_AFTER)?.to_str().ok()?, now)
}

/// Returns how long to wait, from a number of seconds or from a date, which is zero if it has passed. `None` if it is neither.
fn parse(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More than fits is more than anybody waits.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::from(u32::MAX))));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_dates_and_nonsense() {
        let now = httpdate::parse_http_date("Fri, 20 Nov 2026 10:00:00 GMT").unwrap();
        for (value, seconds) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("99999999999999999999999", Some(u64::from(u32::MAX))),
            ("Fri, 20 Nov 2026 10:01:30 GMT", Some(90)),
            ("Friday, 20-Nov-26 10:00:10 GMT", Some(10)),
            ("Fri, 20 Nov 2026 09:00:00 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(parse(value, now), seconds.map(Duration::from_secs), "{value}");
        }
    }
}

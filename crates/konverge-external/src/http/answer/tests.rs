use proptest::prelude::*;

use super::*;
use crate::KEY_LENGTH;

const URL: &str = "https://example.com/document";

struct Case {
    known: Known,
    rules: Rules,
}

impl Case {
    fn new() -> Self {
        Self { known: Known::default(), rules: Rules { empty: false, content_types: Vec::new(), removed_after: 2 } }
    }

    fn take(&mut self, answer: &Answer) -> Result<Option<ChangeKind>, &'static str> {
        use konverge_core::error::Classify;
        let key = FingerprintKey::new([1; KEY_LENGTH]);
        let status = || HttpError::Status { url: URL.to_owned(), status: answer.status, retry_after: None };
        self.known.take(answer, &key, &self.rules, URL, status).map_err(|error| error.reason())
    }
}

fn answer(status: u16, body: &'static str, headers: &[(&'static str, &'static str)]) -> Answer {
    let headers =
        headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
    Answer {
        status: StatusCode::from_u16(status).unwrap(),
        headers: headers.collect(),
        body: Bytes::from_static(body.as_bytes()),
        redirected: false,
    }
}

const ADDED: Result<Option<ChangeKind>, &str> = Ok(Some(ChangeKind::Added));
const MODIFIED: Result<Option<ChangeKind>, &str> = Ok(Some(ChangeKind::Modified));
const REMOVED: Result<Option<ChangeKind>, &str> = Ok(Some(ChangeKind::Removed));
const NOTHING: Result<Option<ChangeKind>, &str> = Ok(None);

const JSON: &[(&str, &str)] = &[("content-type", "application/json; charset=utf-8")];
const HTML: &[(&str, &str)] = &[("content-type", "Text/HTML; charset=utf-8")];

#[test]
fn one_document_through_its_life() {
    let mut case = Case::new();
    for (status, body, headers, expected) in [
        (404, "", HTML, NOTHING),
        (410, "", HTML, NOTHING),
        (500, "", HTML, Err("ServerError")),
        (304, "", JSON, Err("UnexpectedStatus")),
        (200, "a", JSON, ADDED),
        (200, "a", JSON, NOTHING),
        (200, "b", JSON, MODIFIED),
        (200, "", JSON, Err("EmptyDocument")),
        (204, "", &[], Err("EmptyDocument")),
        (206, "b", JSON, Err("UnexpectedStatus")),
        (200, "<html>", HTML, Err("UnexpectedContentType")),
        (302, "", HTML, Err("UnexpectedStatus")),
        (401, "", HTML, Err("Unauthorized")),
        (403, "", HTML, Err("Forbidden")),
        (404, "", HTML, NOTHING),
        (503, "", HTML, Err("ServerError")),
        (200, "b", JSON, NOTHING),
        (404, "", HTML, NOTHING),
        (404, "", HTML, REMOVED),
        (404, "", HTML, NOTHING),
        (200, "b", JSON, ADDED),
        (410, "", HTML, REMOVED),
        (200, "<html>", HTML, ADDED),
    ] {
        let found = case.take(&answer(status, body, headers));
        if found.is_err() {
            case.known.failed();
        }
        assert_eq!(found, expected, "{status} {body:?}");
    }
}

#[test]
fn validators_are_sent_back_and_cleared_with_the_document() {
    let mut case = Case::new();
    assert!(case.known.conditions().is_empty());
    let both = &[("etag", "\"1\""), ("last-modified", "Fri, 20 Nov 2026 10:00:00 GMT")];
    case.take(&answer(200, "a", both)).unwrap();
    assert_eq!(case.known.conditions()[header::IF_NONE_MATCH], "\"1\"");
    assert_eq!(case.known.conditions().len(), 1);
    assert_eq!(case.take(&answer(304, "", &[])), NOTHING);
    case.take(&answer(200, "a", &both[1..])).unwrap();
    assert_eq!(case.known.conditions()[header::IF_MODIFIED_SINCE], "Fri, 20 Nov 2026 10:00:00 GMT");
    assert_eq!(case.take(&answer(410, "", &[])), REMOVED);
    assert!(case.known.conditions().is_empty());
}

#[test]
fn what_was_remembered_is_compared_and_no_condition_is_sent() {
    let mut case = Case::new();
    case.take(&answer(200, "a", JSON)).unwrap();
    let entries = case.known.remembered();
    assert!(!entries["body"].contains('a') || entries["body"].len() == 32);
    for (status, body, headers, expected) in [
        (200, "a", JSON, NOTHING),
        (200, "b", JSON, MODIFIED),
        (200, "<html>", HTML, Err("UnexpectedContentType")),
        (410, "", HTML, REMOVED),
    ] {
        let mut restarted = Case::new();
        restarted.known.recall(entries.clone());
        assert!(restarted.known.conditions().is_empty());
        assert_eq!(restarted.take(&answer(status, body, headers)), expected, "{status} {body}");
    }
}

#[test]
fn a_missing_page_behind_a_redirect_is_an_error() {
    let mut case = Case::new();
    case.take(&answer(200, "a", JSON)).unwrap();
    for status in [404, 410] {
        let elsewhere = Answer { redirected: true, ..answer(status, "", HTML) };
        assert_eq!(case.take(&elsewhere), Err("NotFound"));
    }
}

#[test]
fn rules_are_followed() {
    let mut case = Case::new();
    case.rules = Rules { empty: true, content_types: vec!["application/json".to_owned()], removed_after: 1 };
    assert_eq!(case.take(&answer(200, "a", HTML)), Err("UnexpectedContentType"));
    assert_eq!(case.take(&answer(200, "a", &[])), Err("UnexpectedContentType"));
    assert_eq!(case.take(&answer(200, "a", JSON)), ADDED);
    assert_eq!(case.take(&answer(200, "", JSON)), MODIFIED);
    assert_eq!(case.take(&answer(404, "", JSON)), REMOVED);
}

proptest! {
    /// No destruction from ignorance: whatever comes that is not twice "not found" or "gone", a known document stays.
    #[test]
    fn only_not_found_twice_or_gone_removes(
        answers in proptest::collection::vec((100_u16..600, 0..3_usize, any::<bool>(), any::<bool>()), 0..20)
    ) {
        let mut case = Case::new();
        case.take(&answer(200, "a", JSON)).unwrap();
        let mut before = 200;
        for (status, body, html, redirected) in answers {
            let headers = if html { HTML } else { JSON };
            let given = Answer { redirected, ..answer(status, ["", "a", "<html>"][body], headers) };
            let there = case.known.fingerprint.is_some();
            let found = case.take(&given);
            if found == REMOVED {
                prop_assert!(there && !redirected && (status == 410 || (status == 404 && before == 404)));
            }
            if found.is_err() {
                case.known.failed();
            }
            prop_assert_eq!(there && case.known.fingerprint.is_none(), found == REMOVED);
            before = if redirected || found == REMOVED { 0 } else { status };
        }
    }
}

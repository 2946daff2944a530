//! The meaning of a response. Pure: no client, no clock.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::HttpError;
use crate::{ChangeKind, Entries, FingerprintKey};

/// Names of what is remembered.
const BODY: &str = "body";
const CONTENT_TYPE: &str = "content-type";

/// The known state of a document.
#[derive(Default)]
pub(super) struct Known {
    fingerprint: Option<String>,
    content_type: Option<String>,
    /// Only of an answer that this process has had, so that a "not modified" always means what we know.
    etag: Option<HeaderValue>,
    last_modified: Option<HeaderValue>,
    /// Answers in a row that say it is not there.
    not_found: u32,
}

pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The answer is that of another address.
    pub(super) redirected: bool,
}

/// The requirements for responses.
pub(super) struct Rules {
    pub(super) empty: bool,
    pub(super) content_types: Vec<String>,
    pub(super) removed_after: u32,
}

impl Known {
    pub(super) fn recall(&mut self, mut entries: Entries) {
        *self =
            Self { fingerprint: entries.remove(BODY), content_type: entries.remove(CONTENT_TYPE), ..Self::default() };
    }

    pub(super) fn remembered(&self) -> Entries {
        let entries = [(BODY, &self.fingerprint), (CONTENT_TYPE, &self.content_type)];
        entries.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))).collect()
    }

    /// Headers that spare the body if nothing changed.
    pub(super) fn conditions(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(etag) = &self.etag {
            headers.insert(header::IF_NONE_MATCH, etag.clone());
        } else if let Some(last_modified) = &self.last_modified {
            headers.insert(header::IF_MODIFIED_SINCE, last_modified.clone());
        }
        headers
    }

    /// Any answer but "not found" breaks the row, and so does none.
    pub(super) fn failed(&mut self) {
        self.not_found = 0;
    }

    /// Takes an answer in and says what it changes. `Err` is the answer's own fault, and nothing known is changed by
    /// it; `unexpected` makes that of a status.
    pub(super) fn take(
        &mut self,
        answer: &Answer,
        key: &FingerprintKey,
        rules: &Rules,
        url: &str,
        unexpected: impl FnOnce() -> HttpError,
    ) -> Result<Option<ChangeKind>, HttpError> {
        match answer.status.as_u16() {
            304 if self.etag.is_some() || self.last_modified.is_some() => {
                self.not_found = 0;
                Ok(None)
            }
            404 | 410 if self.fingerprint.is_none() => Ok(None),
            // A redirect to a missing page says nothing about the document.
            404 | 410 if !answer.redirected => Ok(self.missing(answer.status, rules)),
            200..=299 if answer.status != StatusCode::PARTIAL_CONTENT => self.document(answer, key, rules, url),
            _ => Err(unexpected()),
        }
    }

    fn missing(&mut self, status: StatusCode, rules: &Rules) -> Option<ChangeKind> {
        self.not_found += 1;
        // "Gone" is said on purpose; "not found" is also said by a proxy that lost its way.
        if status != StatusCode::GONE && self.not_found < rules.removed_after {
            return None;
        }
        *self = Self::default();
        Some(ChangeKind::Removed)
    }

    fn document(
        &mut self,
        answer: &Answer,
        key: &FingerprintKey,
        rules: &Rules,
        url: &str,
    ) -> Result<Option<ChangeKind>, HttpError> {
        let content_type = text(&answer.headers, &header::CONTENT_TYPE);
        self.expect(content_type.as_deref(), rules, url)?;
        if answer.body.is_empty() && !rules.empty {
            return Err(HttpError::Empty { url: url.to_owned(), status: answer.status });
        }
        let fingerprint = key.fingerprint(&[&answer.body]);
        let change = match &self.fingerprint {
            None => Some(ChangeKind::Added),
            Some(known) if *known == fingerprint => None,
            Some(_) => Some(ChangeKind::Modified),
        };
        *self = Self {
            fingerprint: Some(fingerprint),
            content_type,
            etag: answer.headers.get(header::ETAG).cloned(),
            last_modified: answer.headers.get(header::LAST_MODIFIED).cloned(),
            not_found: 0,
        };
        Ok(change)
    }

    /// A page for people in place of a document for programs is an error page or a login, whatever its status says.
    fn expect(&self, found: Option<&str>, rules: &Rules, url: &str) -> Result<(), HttpError> {
        let found = found.map(essence).unwrap_or_default();
        let refused = |expected| HttpError::ContentType { url: url.to_owned(), found: found.clone(), expected };
        if !rules.content_types.is_empty() {
            let accepted = rules.content_types.contains(&found);
            return if accepted { Ok(()) } else { Err(refused(rules.content_types.join(" or "))) };
        }
        match self.content_type.as_deref().map(essence) {
            Some(known) if known != "text/html" && found == "text/html" => Err(refused(known)),
            _ => Ok(()),
        }
    }
}

/// A media type without its parameters.
pub(crate) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

pub(super) fn text(headers: &HeaderMap, name: &http::HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

#[cfg(test)]
mod tests;

//! One document, watched.

use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, header};
use tokio::time::{Instant, timeout};

use super::{
    Endpoint, HttpError, LongPoll,
    answer::{Answer, Known, Rules, text},
};
use crate::{ChangeKind, Entries, FingerprintKey, Next, Polled, Remembered, Source, SourceError};

/// Unless set, a document is at most this large: more than any configuration, and little enough to hold twice.
const BODY_LIMIT: usize = 8 * 1024 * 1024;

/// A document as it was answered. A test makes one with [`HttpDocument::default`] and sets fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpDocument {
    /// Its content; empty when it was removed.
    pub body: Bytes,
    /// Its address, without user, password and query.
    pub url: String,
    /// The answer's status: 404 or 410 when it was removed.
    pub status: StatusCode,
    /// The `ETag` header.
    pub etag: Option<String>,
    /// The `Last-Modified` header.
    pub last_modified: Option<String>,
    /// The `Content-Type` header.
    pub content_type: Option<String>,
}

/// Watches one document.
///
/// | Answer | Change |
/// |---|---|
/// | a document, for the first time | added |
/// | a document with another content | modified; validators spare the transfer, the content decides |
/// | the same content, or "not modified" | none |
/// | 404 twice in a row, or 410, for a known document | removed |
/// | 404 or 410 before | none |
/// | 429 or 503 with `Retry-After` | none; asked again when it says |
/// | an empty document, an HTML page instead of something else, any other status | none; an error |
///
/// Guarantees: no error, no empty answer and no error page removes or blanks anything; no answer is held beyond the limit.
pub struct HttpSource {
    name: String,
    endpoint: Endpoint,
    rules: Rules,
    body_limit: usize,
    long_poll: Option<LongPoll>,
    cursor: Option<String>,
    known: Known,
    key: Option<FingerprintKey>,
}

impl HttpSource {
    /// Watches what is there. `name` labels metrics and logs.
    pub fn new(name: impl Into<String>, endpoint: Endpoint) -> Self {
        Self {
            name: name.into(),
            endpoint,
            rules: Rules { empty: false, content_types: Vec::new(), removed_after: 2 },
            body_limit: BODY_LIMIT,
            long_poll: None,
            cursor: None,
            known: Known::default(),
            key: None,
        }
    }

    /// The largest document that is taken, in bytes; 8 MiB unless set.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Takes an empty document for one, not for a fault.
    #[must_use]
    pub fn allow_empty(mut self) -> Self {
        self.rules.empty = true;
        self
    }

    /// Takes only documents of this type, for example `application/json`, or of another one given in the same way.
    #[must_use]
    pub fn content_type(mut self, content_type: &str) -> Self {
        self.rules.content_types.push(content_type.to_ascii_lowercase());
        self
    }

    /// How many answers of 404 in a row remove a document; 2 unless set, since a proxy that is starting says 404 as well.
    #[must_use]
    pub fn removed_after(mut self, answers: u32) -> Self {
        self.rules.removed_after = answers;
        self
    }

    /// Asks a server that holds its answer back until there is something new.
    #[must_use]
    pub fn long_poll(mut self, long_poll: LongPoll) -> Self {
        self.long_poll = Some(long_poll);
        self
    }

    async fn ask(&mut self) -> Result<Answer, HttpError> {
        let (wait, query) = match &self.long_poll {
            Some(long_poll) => (long_poll.wait, long_poll.query(self.cursor.as_deref())),
            None => (Duration::ZERO, Vec::new()),
        };
        let limit = self.endpoint.whole_timeout() + wait;
        let conditions = self.known.conditions();
        let ask = async {
            let (answer, redirected) = self.endpoint.send(conditions, &query).await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            // Of an error page nothing is needed; the connection is worth less than what may come.
            let body =
                if status.is_success() { self.endpoint.body(answer, self.body_limit).await? } else { Bytes::new() };
            Ok(Answer { status, headers, body, redirected })
        };
        let answered = timeout(limit, ask).await;
        answered.unwrap_or_else(|_| Err(HttpError::Timeout { url: self.endpoint.shown().to_owned(), limit }))
    }

    async fn once(&mut self) -> Result<Polled<HttpDocument>, HttpError> {
        let began = Instant::now();
        let key = match &self.key {
            Some(key) => key.clone(),
            None => self.key.insert(FingerprintKey::random()?).clone(),
        };
        let answer = self.ask().await?;
        let unexpected = || self.endpoint.status(answer.status, &answer.headers);
        if let Some(long_poll) = &self.long_poll {
            // A cursor that the server no longer knows says nothing about the document.
            if self.cursor.is_some() && matches!(answer.status.as_u16(), 404 | 410) {
                return Err(unexpected());
            }
            if answer.status == StatusCode::NO_CONTENT && long_poll.waited(began.elapsed()) {
                return Ok(Polled::now(Vec::new()));
            }
        }
        let change = self.known.take(&answer, &key, &self.rules, self.endpoint.shown(), unexpected)?;
        let next = match &self.long_poll {
            Some(long_poll) => {
                if let Some(names) = &long_poll.cursor {
                    self.cursor = text(&answer.headers, &names.header).or(self.cursor.take());
                }
                let pace = change.is_some_and(|change| change != ChangeKind::Removed);
                if pace || long_poll.waited(began.elapsed()) { Next::Now } else { Next::AfterInterval }
            }
            None => Next::AfterInterval,
        };
        let changes = change.map(|change| change.of(self.item(answer))).into_iter().collect();
        Ok(Polled { changes, next, failure: None })
    }

    fn item(&self, answer: Answer) -> HttpDocument {
        let gone = !answer.status.is_success();
        let header = |name| text(&answer.headers, &name).filter(|_| !gone);
        HttpDocument {
            url: self.endpoint.shown().to_owned(),
            status: answer.status,
            etag: header(header::ETAG),
            last_modified: header(header::LAST_MODIFIED),
            content_type: header(header::CONTENT_TYPE),
            body: answer.body,
        }
    }
}

impl Source for HttpSource {
    type Item = HttpDocument;

    fn name(&self) -> &str {
        &self.name
    }

    async fn poll(&mut self) -> Result<Polled<HttpDocument>, SourceError> {
        let polled = self.once().await;
        polled.map_err(|error| {
            self.known.failed();
            self.cursor = None;
            SourceError::new(error)
        })
    }

    fn recall(&mut self, remembered: Remembered) {
        self.key = Some(remembered.key);
        self.known.recall(remembered.entries);
        self.cursor = None;
    }

    fn remembered(&self) -> Option<Entries> {
        Some(self.known.remembered())
    }
}

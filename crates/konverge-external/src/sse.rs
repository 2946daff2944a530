//! Server-sent events: [`EventStream`] keeps the connection, [`Parser`] understands the bytes.

mod parser;

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use konverge_core::error::in_one_line;
use tokio::time::timeout;

use crate::{
    ChangeKind, Entries, Polled, Remembered, Source, SourceError,
    http::{Endpoint, HttpError},
};

pub use parser::{Event, Parser, Signal};

/// The name under which the last event's id is remembered.
const LAST_EVENT_ID: &str = "last-event-id";

/// Unless set, an event is at most this large.
const EVENT_LIMIT: usize = 1024 * 1024;

/// Unless set, a connection that is silent for longer is taken for dead. Servers are advised to send a comment every 15 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Watches a stream of events (`text/event-stream`, WHATWG HTML, section 9.2).
///
/// ```
/// use konverge_external::{ChangeKind, http::Endpoint, sse::EventStream};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let source = EventStream::new("orders", Endpoint::new("https://shop.example.com/orders/events")?)
///     .kind(|event| if event.event == "cancelled" { ChangeKind::Removed } else { ChangeKind::Added });
/// # drop(source);
/// # Ok(())
/// # }
/// ```
///
/// Guarantees: a stream that ends, breaks or falls silent is opened again, after the pause that the server named or a growing one. It resumes after the last event
/// that the consumer took, also after a restart if there is a memory and the server knows ids. An event over the limit is skipped, counted as `EventTooLarge` and
/// logged; the events after it are delivered, and a new connection resumes after it if its id was read. Does not: notice events that the server never sends again;
/// where those matter, a poll is the net beneath.
pub struct EventStream {
    name: String,
    endpoint: Endpoint,
    idle_timeout: Duration,
    event_limit: usize,
    kind: Box<dyn Fn(&Event) -> ChangeKind + Send>,
    connection: Option<(reqwest::Response, Parser)>,
    last_event_id: String,
    retry: Option<Duration>,
}

impl EventStream {
    /// Watches what is there; each event is [`Change::Added`](crate::Change::Added). `name` labels metrics and logs.
    pub fn new(name: impl Into<String>, endpoint: Endpoint) -> Self {
        Self {
            name: name.into(),
            endpoint,
            idle_timeout: IDLE_TIMEOUT,
            event_limit: EVENT_LIMIT,
            kind: Box::new(|_| ChangeKind::Added),
            connection: None,
            last_event_id: String::new(),
            retry: None,
        }
    }

    /// Tells from an event what it changes.
    #[must_use]
    pub fn kind(mut self, kind: impl Fn(&Event) -> ChangeKind + Send + 'static) -> Self {
        self.kind = Box::new(kind);
        self
    }

    /// How long a connection may be silent, comments apart, before it is taken for dead; 90 s unless set. Must be
    /// longer than the pause between the server's comments.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// The largest event that is delivered, in bytes; 1 MiB unless set. Larger ones are skipped.
    #[must_use]
    pub fn event_limit(mut self, bytes: usize) -> Self {
        self.event_limit = bytes;
        self
    }

    async fn connect(&mut self) -> Result<(), HttpError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(id) = HeaderValue::from_bytes(self.last_event_id.as_bytes())
            && !id.is_empty()
        {
            headers.insert(LAST_EVENT_ID, id);
        }
        let limit = self.endpoint.whole_timeout();
        let url = self.endpoint.shown().to_owned();
        let answered = timeout(limit, self.endpoint.send(headers, &[])).await;
        let (answer, _) = answered.map_err(|_| HttpError::Timeout { url: url.clone(), limit })??;
        if answer.status() != http::StatusCode::OK {
            return Err(self.endpoint.status(answer.status(), answer.headers()));
        }
        let found =
            answer.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if crate::http::essence(found) != "text/event-stream" {
            return Err(HttpError::ContentType {
                url,
                found: found.to_owned(),
                expected: "text/event-stream".to_owned(),
            });
        }
        self.connection = Some((answer, Parser::new(self.event_limit, &self.last_event_id)));
        Ok(())
    }

    /// The next bytes of the connection. It is given up with any error.
    async fn receive(&mut self) -> Result<Polled<Event>, HttpError> {
        let Some((mut answer, mut parser)) = self.connection.take() else { return Ok(Polled::now(Vec::new())) };
        let received = timeout(self.idle_timeout, answer.chunk()).await;
        let bytes = match received {
            Err(_) => return Err(self.ended(format!("silent for {} s", self.idle_timeout.as_secs_f32()))),
            Ok(Err(error)) => return Err(self.ended(in_one_line(&error.without_url()))),
            Ok(Ok(None)) => return Err(self.ended("the server closed it".to_owned())),
            Ok(Ok(Some(bytes))) => bytes,
        };
        let mut polled = Polled::now(Vec::new());
        for signal in parser.feed(&bytes) {
            match signal {
                Signal::Event(event) => polled.changes.push((self.kind)(&event).of(event)),
                Signal::TooLarge => {
                    let (url, limit) = (self.endpoint.shown().to_owned(), self.event_limit);
                    polled.failure = Some(SourceError::new(HttpError::EventTooLarge { url, limit }));
                }
                Signal::LastEventId(id) => self.last_event_id = id,
                Signal::Retry(pause) => self.retry = Some(pause),
            }
        }
        self.connection = Some((answer, parser));
        Ok(polled)
    }

    fn ended(&self, cause: String) -> HttpError {
        HttpError::StreamEnded { url: self.endpoint.shown().to_owned(), cause, retry_after: self.retry }
    }
}

impl Source for EventStream {
    type Item = Event;

    fn name(&self) -> &str {
        &self.name
    }

    /// One poll opens the stream, each further one waits for the next bytes of it.
    async fn poll(&mut self) -> Result<Polled<Event>, SourceError> {
        if self.connection.is_none() {
            self.connect().await.map_err(SourceError::new)?;
            return Ok(Polled::now(Vec::new()));
        }
        self.receive().await.map_err(SourceError::new)
    }

    fn recall(&mut self, mut remembered: Remembered) {
        self.last_event_id = remembered.entries.remove(LAST_EVENT_ID).unwrap_or_default();
        // A connection that is open would go on elsewhere.
        self.connection = None;
    }

    fn remembered(&self) -> Option<Entries> {
        Some(Entries::from([(LAST_EVENT_ID.to_owned(), self.last_event_id.clone())]))
    }
}

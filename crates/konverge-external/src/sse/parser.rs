//! The event stream format as a state machine: bytes in, signals out, no IO.

use std::time::Duration;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The id that was valid when it came, its own or an earlier one; empty if there was none.
    pub id: String,
    /// Its type; `message` if it named none.
    pub event: String,
    /// Its lines, joined by line feeds.
    pub data: String,
}

/// What bytes amount to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// An event is complete.
    Event(Event),
    /// From now on a new connection resumes after this id; comes before the event that it came with.
    LastEventId(String),
    /// The server says how long to wait before a new connection.
    Retry(Duration),
}

/// An event or a line of one exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than the {limit} bytes that are allowed; raise the limit if that is meant")]
pub struct EventTooLarge {
    limit: usize,
}

/// Understands a stream however it is cut into pieces. What is not UTF-8 is replaced, as the standard says; an event
/// that is not complete at the end of the stream is none.
#[derive(Debug)]
pub struct Parser {
    limit: usize,
    line: Vec<u8>,
    /// The last byte was a carriage return, so that a line feed now belongs to it.
    after_return: bool,
    first_line: bool,
    data: String,
    event: String,
    /// Set by a field, valid from the end of its event on.
    id: Option<String>,
    last_id: String,
}

impl Parser {
    /// For a new connection after the event with this id, empty if there is none; lines and events are at most `limit`
    /// bytes long.
    pub fn new(limit: usize, last_event_id: &str) -> Self {
        Self {
            limit,
            line: Vec::new(),
            after_return: false,
            first_line: true,
            data: String::new(),
            event: String::new(),
            id: None,
            last_id: last_event_id.to_owned(),
        }
    }

    /// Takes the next bytes. After an error the connection is of no use any more.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Signal>, EventTooLarge> {
        let mut signals = Vec::new();
        for &byte in bytes {
            let belongs = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            match byte {
                b'\n' if belongs => {}
                b'\n' | b'\r' => self.end_of_line(&mut signals)?,
                _ if self.line.len() >= self.limit => return Err(EventTooLarge { limit: self.limit }),
                _ => self.line.push(byte),
            }
        }
        Ok(signals)
    }

    fn end_of_line(&mut self, signals: &mut Vec<Signal>) -> Result<(), EventTooLarge> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if std::mem::replace(&mut self.first_line, false) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            self.end_of_event(signals);
            return Ok(());
        }
        let text = String::from_utf8_lossy(line);
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.data.len() + value.len() >= self.limit {
                    return Err(EventTooLarge { limit: self.limit });
                }
                self.data.push_str(value);
                self.data.push('\n');
            }
            "event" => value.clone_into(&mut self.event),
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                signals
                    .extend(value.parse().ok().map(|milliseconds| Signal::Retry(Duration::from_millis(milliseconds))));
            }
            // A comment has no name, and unknown fields are for others.
            _ => {}
        }
        Ok(())
    }

    fn end_of_event(&mut self, signals: &mut Vec<Signal>) {
        if let Some(id) = self.id.take() {
            self.last_id.clone_from(&id);
            signals.push(Signal::LastEventId(id));
        }
        let event = std::mem::take(&mut self.event);
        let mut data = std::mem::take(&mut self.data);
        if data.pop().is_some() {
            let event = if event.is_empty() { "message".to_owned() } else { event };
            signals.push(Signal::Event(Event { id: self.last_id.clone(), event, data }));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Vec<Signal> {
        Parser::new(1000, "").feed(text.as_bytes()).unwrap()
    }

    fn event(id: &str, event: &str, data: &str) -> Signal {
        Signal::Event(Event { id: id.to_owned(), event: event.to_owned(), data: data.to_owned() })
    }

    fn id(id: &str) -> Signal {
        Signal::LastEventId(id.to_owned())
    }

    #[test]
    fn the_format() {
        for (text, expected) in [
            ("data: a\n\n", vec![event("", "message", "a")]),
            ("data:a\r\rdata: b\r\n\r\n", vec![event("", "message", "a"), event("", "message", "b")]),
            ("data\n\ndata\ndata\n\n", vec![event("", "message", ""), event("", "message", "\n")]),
            ("data:  a\ndata: b: c\n\n", vec![event("", "message", " a\nb: c")]),
            (": comment\n\nevent: x\n\ndata: a\n\n", vec![event("", "message", "a")]),
            ("event: x\ndata: a\n\ndata: b\n\n", vec![event("", "x", "a"), event("", "message", "b")]),
            ("id: 1\ndata: a\n\ndata: b\n\n", vec![id("1"), event("1", "message", "a"), event("1", "message", "b")]),
            ("id: 1\n\nid\ndata: a\n\n", vec![id("1"), id(""), event("", "message", "a")]),
            ("id: 1\0\ndata: a\n\n", vec![event("", "message", "a")]),
            ("retry: 1500\nretry: x\nretry:\nretry: -1\n", vec![Signal::Retry(Duration::from_millis(1500))]),
            ("\u{feff}data: a\n\n\u{feff}data: b\n\n", vec![event("", "message", "a")]),
            ("other: a\nDATA: b\n\n", vec![]),
            ("data: never complete\n", vec![]),
            ("id: not yet\ndata: a", vec![]),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn an_id_outlives_its_connection() {
        assert_eq!(Parser::new(100, "7").feed(b"data: a\n\n").unwrap(), [event("7", "message", "a")]);
    }

    #[test]
    fn what_is_not_text_is_replaced() {
        let signals = Parser::new(100, "").feed(b"data: a\xff\n\n").unwrap();
        assert_eq!(signals, [event("", "message", "a\u{fffd}")]);
    }

    #[test]
    fn lines_and_events_have_a_limit() {
        assert!(Parser::new(10, "").feed(b": 345678901").is_err());
        assert!(Parser::new(10, "").feed(b": 34567890\n").is_ok());
        assert!(Parser::new(11, "").feed(b"data: 12345\ndata: 67890\n").is_err());
        assert!(Parser::new(11, "").feed(b"data: 12345\n\ndata: 67890\n\n").is_ok());
    }

    /// Text in which all that matters to the format is frequent.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            Just("\n"),
            Just("\r"),
            Just("\r\n"),
            Just("\n\n"),
            Just("data"),
            Just("id"),
            Just("event"),
            Just("retry"),
            Just(":"),
            Just(": "),
            Just("x"),
            Just("7"),
            Just("\u{feff}"),
            Just("é"),
            Just("\0"),
        ];
        proptest::collection::vec(part, 0..60).prop_map(|parts| parts.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn the_cuts_do_not_matter(
            stream in stream(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let whole = Parser::new(1000, "").feed(&stream).unwrap();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let mut parser = Parser::new(1000, "");
            let pieces = cuts.windows(2).flat_map(|pair| parser.feed(&stream[pair[0]..pair[1]]).unwrap());
            prop_assert_eq!(pieces.collect::<Vec<_>>(), whole);
        }

        #[test]
        fn no_bytes_make_it_panic_or_hold_more_than_the_limit(stream in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut parser = Parser::new(50, "");
            let _ = parser.feed(&stream);
            prop_assert!(parser.line.len() <= 50 && parser.data.len() <= 150);
        }

        #[test]
        fn what_is_written_is_read(data in "[a-zé: ]{0,20}", name in "[a-z]{1,5}", last in "[a-z0-9]{1,5}") {
            let text = format!("event: {name}\nid: {last}\ndata: {data}\n\n");
            prop_assert_eq!(parse(&text), [id(&last), event(&last, &name, &data)]);
        }
    }
}

//! The event stream format as a state machine: bytes in, signals out, no IO.

use std::time::Duration;

/// An event. The format has no further fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The id that was valid when it came, its own or an earlier one; empty if there was none.
    pub id: String,
    /// Its type; `message` if it named none.
    pub event: String,
    /// Its lines, joined by line feeds.
    pub data: String,
}

/// The result of parsing bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// An event is complete.
    Event(Event),
    /// From now on a new connection resumes after this id; comes before the event that it came with.
    LastEventId(String),
    /// The server says how long to wait before a new connection.
    Retry(Duration),
    /// The current event exceeds the limit and is skipped. Comes once per event, as soon as the limit is passed.
    TooLarge,
}

/// A parser of event streams, independent of how the bytes are cut into pieces. Bytes that are not UTF-8 are replaced, as
/// the standard says. An event that is incomplete at the end of the stream is dropped.
///
/// An event that exceeds the limit is skipped: its bytes are read and dropped, and the events after it are delivered. Its id
/// counts as soon as it is known, so that a new connection resumes after the skipped event instead of into it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is true independently of the others")]
pub struct Parser {
    limit: usize,
    line: Vec<u8>,
    /// The current line has more than `limit` bytes; `line` holds the first of them.
    is_line_cut: bool,
    /// The current event exceeds the limit.
    is_skipping: bool,
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
            is_line_cut: false,
            is_skipping: false,
            after_return: false,
            first_line: true,
            data: String::new(),
            event: String::new(),
            id: None,
            last_id: last_event_id.to_owned(),
        }
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Signal> {
        let mut signals = Vec::new();
        for &byte in bytes {
            let belongs = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            match byte {
                b'\n' if belongs => {}
                b'\n' | b'\r' => self.end_of_line(&mut signals),
                _ if self.line.len() < self.limit => self.line.push(byte),
                _ if self.is_line_cut => {}
                _ => {
                    self.is_line_cut = true;
                    // A comment belongs to no event.
                    if self.line.first() != Some(&b':') {
                        self.skip_event(&mut signals);
                    }
                }
            }
        }
        signals
    }

    fn end_of_line(&mut self, signals: &mut Vec<Signal>) {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if std::mem::replace(&mut self.first_line, false) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if std::mem::take(&mut self.is_line_cut) {
            return;
        }
        if line.is_empty() {
            self.end_of_event(signals);
            return;
        }
        let text = String::from_utf8_lossy(line);
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" | "event" if self.is_skipping => {}
            "data" if self.data.len() + value.len() >= self.limit => self.skip_event(signals),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "event" => value.clone_into(&mut self.event),
            "id" if !value.contains('\0') => {
                self.id = Some(value.to_owned());
                if self.is_skipping {
                    self.take_id(signals);
                }
            }
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                signals
                    .extend(value.parse().ok().map(|milliseconds| Signal::Retry(Duration::from_millis(milliseconds))));
            }
            // A comment has no name, and unknown fields are for others.
            _ => {}
        }
    }

    /// Drops the current event, and all of it that is still to come.
    fn skip_event(&mut self, signals: &mut Vec<Signal>) {
        if !std::mem::replace(&mut self.is_skipping, true) {
            self.data = String::new();
            self.event = String::new();
            signals.push(Signal::TooLarge);
            self.take_id(signals);
        }
    }

    fn take_id(&mut self, signals: &mut Vec<Signal>) {
        if let Some(id) = self.id.take() {
            self.last_id.clone_from(&id);
            signals.push(Signal::LastEventId(id));
        }
    }

    fn end_of_event(&mut self, signals: &mut Vec<Signal>) {
        self.take_id(signals);
        self.is_skipping = false;
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
        Parser::new(1000, "").feed(text.as_bytes())
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
        assert_eq!(Parser::new(100, "7").feed(b"data: a\n\n"), [event("7", "message", "a")]);
    }

    #[test]
    fn what_is_not_text_is_replaced() {
        let signals = Parser::new(100, "").feed(b"data: a\xff\n\n");
        assert_eq!(signals, [event("", "message", "a\u{fffd}")]);
    }

    #[test]
    fn lines_and_events_have_a_limit() {
        let signals = |limit, text: &str| Parser::new(limit, "").feed(text.as_bytes());
        assert_eq!(signals(10, "x: 45678901"), [Signal::TooLarge]);
        assert_eq!(signals(10, "x: 4567890\n"), []);
        assert_eq!(signals(11, "data: 12345\ndata: 67890\n"), [Signal::TooLarge]);
        let both = [event("", "message", "12345"), event("", "message", "67890")];
        assert_eq!(signals(11, "data: 12345\n\ndata: 67890\n\n"), both);
    }

    #[test]
    fn an_event_over_the_limit_is_skipped_and_the_next_one_comes() {
        let small = || event("2", "message", "b");
        for (text, expected) in [
            ("id: 1\ndata: 1234567\n\nid: 2\ndata: b\n\n", vec![Signal::TooLarge, id("1"), id("2"), small()]),
            ("data: 1234567\nid: 1\n\nid: 2\ndata: b\n\n", vec![Signal::TooLarge, id("1"), id("2"), small()]),
            ("data: 1234567\r\rid: 2\rdata: b\r\r", vec![Signal::TooLarge, id("2"), small()]),
            (
                "data: 1234567\ndata: 1234567\ndata: a\nevent: x\n\nid: 2\ndata: b\n\n",
                vec![Signal::TooLarge, id("2"), small()],
            ),
            ("id: 2\ndata: 1234\ndata: 1234\ndata: 1234\n\ndata: b\n\n", vec![Signal::TooLarge, id("2"), small()]),
            // A long comment costs no event, and a connection that breaks later resumes after the skipped event.
            (": a long comment\nid: 2\ndata: b\n\n", vec![id("2"), small()]),
            ("data: 1234567\nid: 1\ndata: 1", vec![Signal::TooLarge, id("1")]),
            ("id: 1\ndata: 1234567", vec![Signal::TooLarge, id("1")]),
        ] {
            assert_eq!(Parser::new(12, "").feed(text.as_bytes()), expected, "{text:?}");
        }
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
            limit in prop_oneof![Just(1000), 1_usize..12],
        ) {
            let whole = Parser::new(limit, "").feed(&stream);
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let mut parser = Parser::new(limit, "");
            let pieces = cuts.windows(2).flat_map(|pair| parser.feed(&stream[pair[0]..pair[1]]));
            prop_assert_eq!(pieces.collect::<Vec<_>>(), whole);
        }

        #[test]
        fn no_bytes_make_it_panic_or_hold_more_than_the_limit(stream in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut parser = Parser::new(50, "");
            let _ = parser.feed(&stream);
            prop_assert!(parser.line.len() <= 50 && parser.data.len() <= 150);
        }

        #[test]
        fn nothing_before_an_event_that_fits_keeps_it_from_coming(before in stream()) {
            let mut parser = Parser::new(8, "");
            parser.feed(&before);
            // The end of a line that may have begun, the end of its event, and then the one that fits.
            let signals = parser.feed(b"\n\nid: 9\ndata: z\n\n");
            prop_assert_eq!(signals.last(), Some(&event("9", "message", "z")));
        }

        #[test]
        fn what_is_written_is_read(data in "[a-zé: ]{0,20}", name in "[a-z]{1,5}", last in "[a-z0-9]{1,5}") {
            let text = format!("event: {name}\nid: {last}\ndata: {data}\n\n");
            prop_assert_eq!(parse(&text), [id(&last), event(&last, &name, &data)]);
        }
    }
}

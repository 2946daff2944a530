//! The events of a watch within the bytes of its body: one JSON object per line. No IO.

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;

use super::plan::EventKind;

/// The fields of a watch event that a rule can match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: EventKind,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Whether it is the bookmark that ends the initial events of a streaming list.
    pub(super) ends_initial: bool,
}

/// Cuts a body into lines.
#[derive(Debug, Default)]
pub(super) struct Lines(BytesMut);

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole line with its end.
    pub(super) fn next_line(&mut self) -> Option<Bytes> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        Some(self.0.split_to(end + 1).freeze())
    }

    /// The rest at the end of the body: an unfinished line, or nothing.
    pub(super) fn rest(&mut self) -> Option<Bytes> {
        self.0.has_remaining().then(|| self.0.split().freeze())
    }
}

impl Event {
    /// Reads a line; nothing if it is no event.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Line {
            r#type: EventKind,
            #[serde(default)]
            object: Object,
        }
        #[derive(Default, Deserialize)]
        struct Object {
            // The Status of an ERROR event has one that says little.
            #[serde(default)]
            metadata: Metadata,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Metadata {
            name: Option<String>,
            namespace: Option<String>,
            annotations: Option<serde_json::Map<String, serde_json::Value>>,
        }
        let line: Line = serde_json::from_slice(line).ok()?;
        let Metadata { name, namespace, annotations } = line.object.metadata;
        Some(Self {
            kind: line.r#type,
            namespace: namespace.unwrap_or_default(),
            name: name.unwrap_or_default(),
            ends_initial: annotations.is_some_and(|all| all.contains_key("k8s.io/initial-events-end")),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events() {
        let event = |kind, namespace: &str, name: &str, ends_initial| {
            Some(Event { kind, namespace: namespace.into(), name: name.into(), ends_initial })
        };
        for (line, expected) in [
            (
                r#"{"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","annotations":null}}}"#,
                event(EventKind::Added, "shop", "a", false),
            ),
            (r#"{"type":"DELETED","object":{"metadata":{"name":"n"}}}"#, event(EventKind::Deleted, "", "n", false)),
            (
                r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410}}"#,
                event(EventKind::Error, "", "", false),
            ),
            (
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"3","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
                event(EventKind::Bookmark, "", "", true),
            ),
            (r#"{"type":"ADDED","obj"#, None),
            (r#"{"type":"RENAMED","object":{}}"#, None),
            ("", None),
        ] {
            assert_eq!(Event::parse(line.as_bytes()), expected, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_lines(lines in proptest::collection::vec("[a-z]{0,9}", 0..9), rest in "[a-z]{0,5}", sizes in proptest::collection::vec(1..7_usize, 90)) {
            let whole = lines.iter().map(String::as_str).chain([rest.as_str()]).collect::<Vec<_>>().join("\n");
            let (mut cut, mut found, mut left) = (Lines::default(), Vec::new(), whole.as_bytes());
            for size in sizes {
                let (piece, later) = left.split_at(size.min(left.len()));
                cut.push(piece);
                found.extend(std::iter::from_fn(|| cut.next_line()));
                left = later;
            }
            let expected: Vec<_> = lines.iter().map(|line| Bytes::from(format!("{line}\n"))).collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(cut.rest().unwrap_or_default(), rest);
        }
    }
}

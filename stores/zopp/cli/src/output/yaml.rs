//! YAML out of an answer's JSON.
//!
//! An answer may hold values. So no string is decoded on the way: the JSON text is in a wiped buffer, and its parts are copied into
//! another one. JSON's strings are YAML's double-quoted scalars as they stand.

use crate::wiped::Wiped;

/// Writes JSON values, one after the other, as YAML documents. The JSON must be valid.
pub(super) fn write(json: &[u8], out: &mut Wiped) {
    let mut reader = Reader { rest: json };
    let mut is_first = true;
    while reader.peek().is_some() {
        if !is_first {
            out.push(b"---\n");
        }
        is_first = false;
        reader.value(0, Position::Line, out);
    }
}

/// Where a value begins.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    /// At the beginning of a line.
    Line,
    /// Behind `key:`.
    Key,
    /// Behind `- `.
    Item,
}

/// Over valid JSON.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest.first().copied()
    }

    /// Whether this byte is next; it is passed over if so.
    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    /// A string with its quotes, a number or a word.
    fn scalar(&mut self) -> &'a [u8] {
        let is_string = self.peek() == Some(b'"');
        let mut is_escaped = false;
        let end = self.rest.iter().enumerate().skip(1).find_map(|(index, byte)| match byte {
            _ if !is_string => b",}] \r\n\t{[\"".contains(byte).then_some(index),
            _ if std::mem::take(&mut is_escaped) => None,
            b'\\' => {
                is_escaped = true;
                None
            }
            b'"' => Some(index + 1),
            _ => None,
        });
        let (scalar, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        scalar
    }

    fn value(&mut self, depth: usize, position: Position, out: &mut Wiped) {
        match self.peek() {
            Some(b'{') => self.block(depth, position, b'}', out),
            Some(b'[') => self.block(depth, position, b']', out),
            _ => {
                let scalar = self.scalar();
                in_line(scalar, position, out);
            }
        }
    }

    /// An object or a list, which ends with `end`.
    fn block(&mut self, depth: usize, position: Position, end: u8, out: &mut Wiped) {
        self.rest = &self.rest[1..];
        let is_object = end == b'}';
        let mut is_first = true;
        // The end of the text ends it as well: a mistake here must not print for ever.
        while !self.takes(end) && self.peek().is_some() {
            self.takes(b',');
            begin_line(depth, position, is_first, out);
            is_first = false;
            if is_object {
                self.peek();
                out.push(key(self.scalar()));
                out.push(b":");
                self.takes(b':');
                self.value(depth + 1, Position::Key, out);
            } else {
                out.push(b"- ");
                self.value(depth + 1, Position::Item, out);
            }
        }
        if is_first {
            in_line(if is_object { b"{}" } else { b"[]" }, position, out);
        }
    }
}

/// The first line of a list's entry stands behind its dash; all other lines are indented.
fn begin_line(depth: usize, position: Position, is_first: bool, out: &mut Wiped) {
    if is_first && position == Position::Key {
        out.push(b"\n");
    }
    if !(is_first && position == Position::Item) {
        for _ in 0..depth {
            out.push(b"  ");
        }
    }
}

fn in_line(text: &[u8], position: Position, out: &mut Wiped) {
    if position == Position::Key {
        out.push(b" ");
    }
    out.push(text);
    out.push(b"\n");
}

/// Without its quotes if it is a plain word that YAML takes for nothing else.
fn key(quoted: &[u8]) -> &[u8] {
    const WORDS: [&[u8]; 10] = [b"true", b"false", b"null", b"yes", b"no", b"on", b"off", b"y", b"n", b"nan"];
    let bare = quoted.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or_default();
    let is_word = bare.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        && bare.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        && !WORDS.iter().any(|word| bare.eq_ignore_ascii_case(word));
    if is_word { bare } else { quoted }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn yaml(value: &Value) -> String {
        let mut out = Wiped::default();
        write(&serde_json::to_vec_pretty(value).unwrap(), &mut out);
        String::from_utf8(out.bytes().to_vec()).unwrap()
    }

    #[test]
    fn objects_and_lists_are_blocks() {
        let value = json!({
            "version": 3,
            "secrets": ["A", "B: \"c\""],
            "none": [],
            "owner": {"id": null, "on": true},
            "list": [{"name": "x", "roles": ["read"]}, {"name": "y", "roles": {}}],
        });
        assert_eq!(
            yaml(&value),
            "list:\n  - name: \"x\"\n    roles:\n      - \"read\"\n  - name: \"y\"\n    roles: {}\nnone: []\nowner:\n  id: null\n  \
             \"on\": true\nsecrets:\n  - \"A\"\n  - \"B: \\\"c\\\"\"\nversion: 3\n"
        );
    }

    #[test]
    fn several_values_are_several_documents() {
        let mut out = Wiped::default();
        write(b"{\"a\":1}\n{\"a\":2}\n", &mut out);
        assert_eq!(out.bytes(), b"a: 1\n---\na: 2\n");
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "\\PC{0,8}|[ -~\n\t\\\\\"]{0,8}|yes|~|1e3|0x1".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-z_]{1,6}|[ -~]{0,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// By a parser that knows nothing of this file.
        #[test]
        fn what_is_written_is_read_back(value in any_value()) {
            let text = yaml(&value);
            let back: Result<Value, _> = serde_saphyr::from_str(&text);
            let back = back.map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
            prop_assert_eq!(back, value, "{}", text);
        }
    }
}

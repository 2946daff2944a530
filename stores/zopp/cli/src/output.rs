//! How answers are printed.
//!
//! Each command gives one [`Answer`]: a text for people and a JSON object for programs (`--output json`), of which YAML and a table are
//! other spellings. The shape of the object is that of the answer's fields, documented on each answer; a listing is an object with one array, so that
//! fields can be added later. Times are RFC 3339 in both. A value that is not UTF-8 text is `{"base64": "…"}`.

use std::{
    ffi::OsStr,
    fs::File,
    io::{ErrorKind, Write},
    os::fd::AsFd,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::ValueEnum;
use serde::{Serialize, Serializer, ser::SerializeMap};
use zeroize::Zeroizing;

use crate::{escape::visible, failure::Failure, wiped::Wiped};

mod table;

/// `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object.
    Json,
    /// The same object as YAML.
    Yaml,
    /// The same object as a table, with a row for each entry of a listing.
    Table,
}

impl Format {
    /// Returns the format of this name.
    pub fn named(name: &OsStr) -> Option<Self> {
        Self::from_str(name.to_str()?, true).ok()
    }
}

/// The result of a command.
pub trait Answer {
    /// Appends the text for people, with its newline.
    fn text(&self, text: &mut Wiped) -> Result<(), Failure>;

    /// Adds the object of the machine formats to the document.
    fn object(&self, document: &mut Document<'_>) -> Result<(), Failure>;

    /// Whether it holds values. Those are in no table: it would copy them to where nothing wipes them.
    fn holds_values(&self) -> bool {
        false
    }

    /// The code that the process ends with.
    fn exit_code(&self) -> u8 {
        0
    }

    /// Returns the failure of a command that did only a part of its work. The answer says which part, and the exit code is that of the failure.
    fn failure(&self) -> Option<&Failure> {
        None
    }
}

/// The exit of a command.
pub type Outcome = Result<Box<dyn Answer>, Failure>;

/// An answer made of a serialisable object and a text.
pub struct Plain<T> {
    /// The JSON object.
    pub object: T,
    /// The text, without its last newline.
    pub text: String,
}

impl<T: Serialize> Answer for Plain<T> {
    fn text(&self, text: &mut Wiped) -> Result<(), Failure> {
        // Answers of several lines are made of names, which may come from the server.
        for line in self.text.split('\n') {
            text.push(visible(line).as_bytes());
            text.push(b"\n");
        }
        Ok(())
    }

    fn object(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        document.put(&self.object)
    }
}

/// A boxed answer, as commands return it.
pub fn plain<T: Serialize + 'static>(object: T, text: impl Into<String>) -> Box<dyn Answer> {
    Box::new(Plain { object, text: text.into() })
}

/// The answer of a command that did only a part of its work.
struct Partial<T> {
    done: Plain<T>,
    failure: Failure,
}

impl<T: Serialize> Answer for Partial<T> {
    fn text(&self, text: &mut Wiped) -> Result<(), Failure> {
        self.done.text(text)
    }

    fn object(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        self.done.object(document)
    }

    fn failure(&self) -> Option<&Failure> {
        Some(&self.failure)
    }
}

/// Returns the answer of a command that did only a part of its work. Like [`plain`], but the process also reports the failure.
pub fn partial<T: Serialize + 'static>(object: T, text: impl Into<String>, failure: Failure) -> Box<dyn Answer> {
    Box::new(Partial { done: Plain { object, text: text.into() }, failure })
}

/// Prints the answer in one write. A reader that went away (`zopp secret list | head -1`) is no failure.
pub fn print(answer: &dyn Answer, format: Format) -> Result<(), Failure> {
    let text = written(answer, format)?;
    // Bypasses the standard library's buffer, which is never wiped.
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    match stdout.and_then(|mut stdout| stdout.write_all(text.bytes())) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new("standard output cannot be written").because(error))
        }
        _ => Ok(()),
    }
}

/// Returns the answer in a format, as it is printed.
pub fn written(answer: &dyn Answer, format: Format) -> Result<Wiped, Failure> {
    let mut text = Wiped::default();
    match format {
        Format::Text => answer.text(&mut text)?,
        Format::Table if answer.holds_values() => answer.text(&mut text)?,
        Format::Json => answer.object(&mut Document { is_yaml: false, text: &mut text })?,
        Format::Yaml => answer.object(&mut Document { is_yaml: true, text: &mut text })?,
        Format::Table => {
            let mut json = Wiped::default();
            answer.object(&mut Document { is_yaml: false, text: &mut json })?;
            text.push(table::format(json.bytes()).map_err(unwritable)?.as_bytes());
        }
    }
    Ok(text)
}

/// Returns the text of an object in JSON or YAML.
pub struct Document<'a> {
    is_yaml: bool,
    text: &'a mut Wiped,
}

impl Document<'_> {
    /// Writes the object with a final newline to the wiped buffer, without other copies of its values.
    pub fn put(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        if self.is_yaml {
            // YAML 1.1 parses more words as numbers, dates and booleans than YAML 1.2, so each string is quoted.
            let options = serde_saphyr::ser_options! { quote_all: true, compact_list_indent: false };
            return serde_saphyr::to_fmt_writer_with_options(self.text, object, options).map_err(unwritable);
        }
        serde_json::to_writer_pretty(&mut *self.text, object).map_err(unwritable)?;
        self.text.push(b"\n");
        Ok(())
    }
}

fn unwritable(source: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::new("the answer cannot be written in this format").because(source)
}

/// A value in JSON: a string if it is text, else an object with its base64 form.
pub struct JsonValue<'a>(pub &'a [u8]);

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(self.0) {
            serializer.serialize_str(text)
        } else {
            let mut map = serializer.serialize_map(Some(1))?;
            map.serialize_entry("base64", Zeroizing::new(BASE64_STANDARD.encode(self.0)).as_str())?;
            map.end()
        }
    }
}

/// A heading and the lines below it, or a sentence if there are none. Control characters, which names made elsewhere can hold,
/// are written as escapes: they must not begin lines or control the terminal.
pub fn listing(heading: &str, none: &str, lines: impl Iterator<Item = String>) -> String {
    let lines = lines.map(|line| visible(&line));
    let lines: Vec<String> = std::iter::once(heading.to_owned()).chain(lines).collect();
    if lines.len() == 1 { none.to_owned() } else { lines.join("\n") }
}

/// RFC 3339 of Unix seconds; the number itself if there is no such date.
pub fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_text_or_base64() {
        assert_eq!(serde_json::to_string(&JsonValue(b"a\"b")).unwrap(), r#""a\"b""#);
        assert_eq!(serde_json::to_string(&JsonValue(&[0xff, 0])).unwrap(), r#"{"base64":"/wA="}"#);
    }

    /// Strings that YAML readers parse differently are quoted, and characters that YAML does not allow are escaped.
    #[test]
    fn every_text_comes_back_from_yaml() {
        let texts =
            ["yes", "1e3", "12:30:45", "~", "", " x", "a: b", "#", "'", "\"", "two\nlines\n", "\t", "Größe", "🔑"];
        let odd = ["\u{7f}", "\u{85}", "\u{9f}", "\u{2028}", "\u{2029}", "\u{feff}", "\u{fffe}"];
        for text in texts.into_iter().chain(odd) {
            let object = BTreeMap::from([("key", vec![text]), (text, vec![])]);
            let written = written(&Plain { object, text: String::new() }, Format::Yaml).unwrap();
            let written = str::from_utf8(written.bytes()).unwrap();
            let back: serde_json::Value = serde_saphyr::from_str(written).unwrap();
            assert_eq!(back, json!({ "key": [text], text: [] }), "{written}");
            let is_printable = |letter: char| !odd.concat().contains(letter);
            assert!(written.chars().all(is_printable), "{written:?}");
        }
    }

    #[test]
    fn an_answer_in_yaml() {
        let object = json!({ "secrets": ["A", "B"], "none": [], "version": 3, "owner": { "id": null } });
        let written = written(&Plain { object, text: String::new() }, Format::Yaml).unwrap();
        let expected = "none: []\nowner:\n  id: null\nsecrets:\n  - 'A'\n  - 'B'\nversion: 3\n";
        assert_eq!(str::from_utf8(written.bytes()).unwrap(), expected);
    }

    #[test]
    fn names_do_not_control_the_terminal() {
        let lines = ["a\nb", "\u{1b}[2J", "Größe"].map(str::to_owned).into_iter();
        assert_eq!(listing("Keys:", "None", lines), "Keys:\na\\nb\n\\u{1b}[2J\nGröße");
    }

    #[test]
    fn answers_do_not_control_the_terminal_either() {
        let mut text = Wiped::default();
        plain((), "Name: \u{1b}]0;x\u{7}\u{9b}2J\nID:   \u{202e}dne").text(&mut text).unwrap();
        assert_eq!(text.bytes(), b"Name: \\u{1b}]0;x\\u{7}\\u{9b}2J\nID:   \\u{202e}dne\n");
    }

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(time(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(time(i64::MAX), i64::MAX.to_string());
    }
}

//! Text to assignments, character by character. A line that makes no sense is reported and skipped with the lines of its value, the rest is
//! read.

use std::fmt;

use konverge_core::SecretValue;
use zeroize::Zeroizing;

use super::{Entry, is_key_character};

mod extent;

/// The parsed and the unparsed lines.
pub struct Parsed {
    /// In the order of the lines; a key may occur more than once.
    pub entries: Vec<Entry>,
    /// Lines that were skipped.
    pub problems: Vec<Problem>,
    /// Lines that were read as most readers read them, and that one reads otherwise.
    pub doubts: Vec<Problem>,
}

/// A line with a problem, and the lines behind it that belong to it. Never quotes the lines, which may hold a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problem {
    /// Counted from 1.
    pub line: usize,
    /// The last line of the same value; mostly the same line.
    pub last_line: usize,
    /// The reason.
    pub reason: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, last_line, reason } = self;
        if line == last_line {
            write!(formatter, "line {line}: {reason}")
        } else {
            write!(formatter, "lines {line} to {last_line}: {reason}")
        }
    }
}

impl std::error::Error for Problem {}

/// The rules that a file follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Dialect {
    /// The rules on which most readers agree. A bare value is literal up to the end of its line or to a comment after a space. A `#` without a space
    /// before it belongs to the value, with a warning, because node takes it for a comment. A variable is a problem, because only shells replace it.
    #[default]
    Common,
    /// The rules of the published command line: `$NAME` and `${NAME}` stand for the value of an earlier line, and a backslash escapes also
    /// in bare values.
    Dotenvy,
}

/// Reads a whole file. The line breaks of Windows count as `\n`.
pub fn parse(text: &str, dialect: Dialect) -> Parsed {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    let mut parsed = Parsed { entries: Vec::new(), problems: Vec::new(), doubts: Vec::new() };
    let (mut rest, mut line) = (text, 1);
    // The line of the last entry, if it may be the last line of a value; and whether a problem is the last thing that was read.
    let (mut base64_end, mut after_problem) = (None, false);
    while !rest.is_empty() {
        let mut cursor = Cursor::new(rest, &parsed.entries, dialect);
        let outcome = cursor.assignment();
        let Cursor { consumed, doubt, value, is_quoted, .. } = cursor;
        let may_end_base64 = extent::may_end_base64(&rest[..consumed]);
        let (consumed, read) = match outcome {
            Err(reason) => {
                let value = value.filter(|_| is_quoted || dialect == Dialect::Dotenvy);
                (extent::of_unreadable(rest, consumed, value), Err(reason))
            }
            Ok(Some(_)) if may_end_base64 && after_problem => (consumed, Err(BASE64_END)),
            Ok(Some(entry)) if !is_quoted && opens_block(&entry) => {
                let read = rest[..consumed].trim_end_matches('\n').len();
                (extent::of_unreadable(rest, read, None), Err(BARE_BLOCK))
            }
            Ok(None) => match extent::of_half_commented_block(rest, consumed) {
                Some(block) => (block, Err(BARE_BLOCK)),
                None => (consumed, Ok(None)),
            },
            Ok(entry) => (consumed, Ok(entry)),
        };
        let (text, remaining) = rest.split_at(consumed);
        let next = line + text.matches('\n').count();
        match read {
            Ok(None) => {}
            Ok(Some(entry)) => {
                (base64_end, after_problem) = (may_end_base64.then_some(line), false);
                parsed.doubts.extend(doubt.map(|reason| Problem { line, last_line: line, reason }));
                parsed.entries.push(entry);
            }
            Err(reason) => {
                let first = base64_end.take().filter(|_| extent::ends_block(text));
                if first.is_some() {
                    parsed.entries.pop();
                }
                after_problem = true;
                let last_line = if text.ends_with('\n') { next - 1 } else { next };
                parsed.problems.push(Problem { line: first.unwrap_or(line), last_line, reason });
            }
        }
        (rest, line) = (remaining, next);
    }
    parsed
}

/// Returns `true` if a value begins a block that goes on behind it.
fn opens_block(entry: &Entry) -> bool {
    std::str::from_utf8(entry.value.expose()).is_ok_and(|text| extent::open_block(text).is_some())
}

const BARE_BLOCK: Reason = "a key or certificate of several lines needs quotes around it";
const BASE64_END: Reason =
    "after a line that cannot be read, it may be the end of a value; quote a value of several lines";
const ONLY_PADDING: Reason = "\"=\" and no other character behind the key may be the end of a base64 value; quote a value of several lines, or \"=\"";

struct Cursor<'a> {
    /// The text before the cursor.
    rest: &'a str,
    /// Bytes behind the cursor.
    consumed: usize,
    /// The reason why a reader takes the line otherwise.
    doubt: Option<Reason>,
    /// The beginning of the value, in bytes.
    value: Option<usize>,
    /// Whether the value has a quoted part.
    is_quoted: bool,
    earlier: &'a [Entry],
    dialect: Dialect,
}

type Reason = &'static str;

impl<'a> Cursor<'a> {
    fn new(rest: &'a str, earlier: &'a [Entry], dialect: Dialect) -> Self {
        Self { rest, consumed: 0, doubt: None, value: None, is_quoted: false, earlier, dialect }
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        let length = if self.rest.starts_with("\r\n") { 2 } else { next.len_utf8() };
        self.consumed += length;
        self.rest = &self.rest[length..];
        Some(next)
    }

    fn peek(&self) -> Option<char> {
        if self.rest.starts_with("\r\n") { Some('\n') } else { self.rest.chars().next() }
    }

    fn skip_blanks(&mut self) -> bool {
        let mut skipped = false;
        while self.peek().is_some_and(|character| self.is_blank(character)) {
            self.next();
            skipped = true;
        }
        skipped
    }

    /// Most readers take no other character than these two for a blank.
    fn is_blank(&self, character: char) -> bool {
        match self.dialect {
            Dialect::Common => matches!(character, ' ' | '\t'),
            Dialect::Dotenvy => character != '\n' && character.is_whitespace(),
        }
    }

    /// Reads to the end of the line if nothing but blanks or a comment is left on it.
    fn end_of_line(&mut self) -> Result<(), Reason> {
        self.skip_blanks();
        match self.peek() {
            None => Ok(()),
            Some('\n') => {
                self.next();
                Ok(())
            }
            Some('#') => {
                while self.next().is_some_and(|character| character != '\n') {}
                Ok(())
            }
            Some(_) => Err("text after the value; quote a value that holds blanks"),
        }
    }

    /// One line, which quotes may stretch over several; `None` if it is blank or a comment.
    fn assignment(&mut self) -> Result<Option<Entry>, Reason> {
        self.skip_blanks();
        if matches!(self.peek(), None | Some('\n' | '#')) {
            return self.end_of_line().map(|()| None);
        }
        let mut key = self.key();
        if key == "export" && self.skip_blanks() && self.peek() != Some('=') {
            key = self.key();
        }
        if key.is_empty() {
            return Err("a key is expected: letters, digits, \"_\", \".\" or \"-\"");
        }
        self.skip_blanks();
        if self.peek() != Some('=') {
            return Err("no \"=\" after the key");
        }
        self.next();
        let after_blank = self.skip_blanks();
        self.value = Some(self.consumed);
        let value = match self.dialect {
            Dialect::Common => self.common_value(after_blank)?,
            Dialect::Dotenvy => self.value()?,
        };
        let is_padding = !value.is_empty() && value.expose().iter().all(|byte| *byte == b'=');
        if is_padding && !self.is_quoted {
            return Err(ONLY_PADDING);
        }
        self.end_of_line()?;
        Ok(Some(Entry { key, value }))
    }

    fn key(&mut self) -> String {
        let mut key = String::new();
        while let Some(character) = self.peek().filter(|character| is_key_character(*character)) {
            self.next();
            key.push(character);
        }
        key
    }

    /// Reads a quoted or bare value.
    fn common_value(&mut self, after_blank: bool) -> Result<SecretValue, Reason> {
        let mut value = Zeroizing::new(String::new());
        self.is_quoted = matches!(self.peek(), Some('\'' | '"'));
        match self.peek() {
            Some('\'') => {
                self.next();
                self.single_quoted(&mut value)?;
                self.refuse_attached_comment()?;
            }
            Some('"') => {
                self.next();
                self.common_double_quoted(&mut value)?;
                self.refuse_attached_comment()?;
            }
            Some('`') => {
                // One that is not closed is most likely a character of the value.
                self.is_quoted = self.rest[1..].contains('`');
                return Err("readers parse a value that begins with a backtick differently; put it in single quotes");
            }
            Some('#') if after_blank => {}
            _ => self.bare(&mut value)?,
        }
        Ok(SecretValue::new(std::mem::take(&mut *value).into_bytes()))
    }

    /// Reads literal characters up to the end of the line or a comment after a space.
    fn bare(&mut self, value: &mut Zeroizing<String>) -> Result<(), Reason> {
        let line = self.rest.split('\n').next().unwrap_or_default();
        let line = line.strip_suffix('\r').unwrap_or(line);
        let comment = line.match_indices('#').map(|(at, _)| at).find(|at| line[..*at].ends_with([' ', '\t']));
        let text = line[..comment.unwrap_or(line.len())].trim_end_matches([' ', '\t']);
        if text.contains('\r') {
            return Err("readers disagree on a carriage return inside a line; end lines with a line feed");
        }
        if text.contains('#') {
            self.doubt = Some(
                "\"#\" without a blank before it belongs to the value, as shells and python-dotenv read it; node --env-file ends the value \
                 there; quotes make it clear",
            );
        }
        let end = self.consumed + text.len();
        while self.consumed < end
            && let Some(character) = self.next()
        {
            self.refuse_reference(character)?;
            push(value, character);
        }
        Ok(())
    }

    /// Reads literal characters, and the escapes on which all readers that have them agree. A backslash before any other character is literal.
    fn common_double_quoted(&mut self, value: &mut Zeroizing<String>) -> Result<(), Reason> {
        loop {
            match self.next().ok_or("a double quote is not closed")? {
                '"' => return Ok(()),
                '\\' => match self.next() {
                    Some(escaped @ ('\\' | '"' | '$')) => push(value, escaped),
                    Some('n') => push(value, '\n'),
                    Some('r') => push(value, '\r'),
                    Some('t') => push(value, '\t'),
                    // python-dotenv decodes the letters, and shells drop the backslash before the others.
                    None | Some('a' | 'b' | 'f' | 'v' | '\'' | '`' | '\n') => {
                        return Err("unknown escape; write \"\\\\\" for a backslash or use single quotes");
                    }
                    Some(character) => {
                        push(value, '\\');
                        push(value, character);
                    }
                },
                character => {
                    self.refuse_reference(character)?;
                    push(value, character);
                }
            }
        }
    }

    /// Refuses a `#` after a closing quote. Shells take it for a part of the value, others for a comment.
    fn refuse_attached_comment(&self) -> Result<(), Reason> {
        if self.peek() == Some('#') {
            return Err("readers disagree on \"#\" right behind a quote; put a blank before a comment");
        }
        Ok(())
    }

    /// Refuses `$NAME` and `${NAME}`. Some readers replace them by a variable, others by an earlier line, and others keep them.
    fn refuse_reference(&self, character: char) -> Result<(), Reason> {
        let is_name = |next: char| next == '{' || next == '_' || next.is_ascii_alphanumeric();
        if character == '$' && self.peek().is_some_and(is_name) {
            return Err(
                "readers disagree on \"$\" before a name; use single quotes, or --dialect dotenvy for the value of an earlier line",
            );
        }
        Ok(())
    }

    /// Quoted and bare pieces, side by side, up to a blank outside quotes.
    fn value(&mut self) -> Result<SecretValue, Reason> {
        let mut value = Zeroizing::new(String::new());
        while let Some(character) = self.peek().filter(|character| !character.is_whitespace()) {
            self.next();
            self.is_quoted |= matches!(character, '\'' | '"');
            match character {
                '\'' => self.single_quoted(&mut value)?,
                '"' => self.double_quoted(&mut value)?,
                _ => self.interpreted(character, &mut value)?,
            }
        }
        Ok(SecretValue::new(std::mem::take(&mut *value).into_bytes()))
    }

    fn single_quoted(&mut self, value: &mut Zeroizing<String>) -> Result<(), Reason> {
        loop {
            match self.next().ok_or("a single quote is not closed")? {
                '\'' => return Ok(()),
                character => push(value, character),
            }
        }
    }

    fn double_quoted(&mut self, value: &mut Zeroizing<String>) -> Result<(), Reason> {
        loop {
            match self.next().ok_or("a double quote is not closed")? {
                '"' => return Ok(()),
                character => self.interpreted(character, value)?,
            }
        }
    }

    fn interpreted(&mut self, character: char, value: &mut Zeroizing<String>) -> Result<(), Reason> {
        match character {
            '\\' => match self.next() {
                Some(escaped @ ('\\' | '\'' | '"' | '$' | ' ')) => push(value, escaped),
                Some('n') => push(value, '\n'),
                _ => return Err("unknown escape; write \"\\\\\" for a backslash or use single quotes"),
            },
            '$' => self.substitute(value)?,
            character => push(value, character),
        }
        Ok(())
    }

    fn substitute(&mut self, value: &mut Zeroizing<String>) -> Result<(), Reason> {
        let braced = self.peek() == Some('{');
        if braced {
            self.next();
        } else if !self.peek().is_some_and(|character| character.is_ascii_alphabetic() || character == '_') {
            push(value, '$');
            return Ok(());
        }
        let mut name = String::new();
        while let Some(character) =
            self.peek().filter(|character| character.is_ascii_alphanumeric() || *character == '_')
        {
            self.next();
            name.push(character);
        }
        if braced {
            if self.peek() != Some('}') {
                return Err("\"${\" is not followed by a name and \"}\"");
            }
            self.next();
        }
        let earlier = self.earlier.iter().rev().find(|entry| entry.key == name);
        let text = earlier.and_then(|entry| std::str::from_utf8(entry.value.expose()).ok());
        let text = text.ok_or("refers to a name that no earlier line sets; write \"\\$\" for a dollar sign")?;
        text.chars().for_each(|character| push(value, character));
        Ok(())
    }
}

/// Grows by hand, so that outgrown buffers are wiped.
fn push(value: &mut Zeroizing<String>, character: char) {
    if value.capacity() < value.len() + character.len_utf8() {
        let mut grown = Zeroizing::new(String::with_capacity(2 * value.len() + 64));
        grown.push_str(value);
        *value = grown;
    }
    value.push(character);
}

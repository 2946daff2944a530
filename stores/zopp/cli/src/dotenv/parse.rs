//! Text to assignments, character by character. A line that makes no sense is reported and skipped, the rest is read.

use konverge_core::SecretValue;
use zeroize::Zeroizing;

use super::{Entry, is_key_character};

/// The parsed and the unparsed lines.
pub struct Parsed {
    /// In the order of the lines; a key may occur more than once.
    pub entries: Vec<Entry>,
    /// Lines that were skipped.
    pub problems: Vec<Problem>,
    /// Lines that were read as most readers read them, and that one reads otherwise.
    pub doubts: Vec<Problem>,
}

/// A line with a problem. Never quotes the line, which may hold a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct Problem {
    /// Counted from 1.
    pub line: usize,
    /// The reason.
    pub reason: &'static str,
}

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
    while !rest.is_empty() {
        let mut cursor = Cursor { rest, consumed: 0, doubt: None, earlier: &parsed.entries, dialect };
        let consumed = match cursor.assignment() {
            Ok(entry) => {
                let Cursor { consumed, doubt, .. } = cursor;
                parsed.doubts.extend(doubt.map(|reason| Problem { line, reason }));
                parsed.entries.extend(entry);
                consumed
            }
            Err(reason) => {
                parsed.problems.push(Problem { line, reason });
                // The rest of this line only: after a quote that is never closed, the next line may be good.
                rest.find('\n').map_or(rest.len(), |newline| newline + 1)
            }
        };
        line += rest[..consumed].matches('\n').count();
        rest = &rest[consumed..];
    }
    parsed
}

struct Cursor<'a> {
    /// The text before the cursor.
    rest: &'a str,
    /// Bytes behind the cursor.
    consumed: usize,
    /// The reason why a reader takes the line otherwise.
    doubt: Option<Reason>,
    earlier: &'a [Entry],
    dialect: Dialect,
}

type Reason = &'static str;

impl Cursor<'_> {
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
        if self.next() != Some('=') {
            return Err("no \"=\" after the key");
        }
        let after_blank = self.skip_blanks();
        let value = match self.dialect {
            Dialect::Common => self.common_value(after_blank)?,
            Dialect::Dotenvy => self.value()?,
        };
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
        if braced && self.next() != Some('}') {
            return Err("\"${\" is not followed by a name and \"}\"");
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

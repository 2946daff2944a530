//! Text to assignments, character by character. A line that makes no sense is reported and skipped, the rest is read.

use std::{iter::Peekable, str::Chars};

use konverge_core::SecretValue;
use zeroize::Zeroizing;

use super::{Entry, is_key_character};

/// The parsed and the unparsed lines.
pub struct Parsed {
    /// In the order of the lines; a key may occur more than once.
    pub entries: Vec<Entry>,
    /// Lines that were skipped.
    pub problems: Vec<Problem>,
}

/// A skipped line. Never quotes the line, which may hold a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct Problem {
    /// Counted from 1.
    pub line: usize,
    /// The reason.
    pub reason: &'static str,
}

/// Reads a whole file. `$NAME` and `${NAME}` stand for the value of an earlier line.
pub fn parse(text: &str) -> Parsed {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parsed = Parsed { entries: Vec::new(), problems: Vec::new() };
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let mut cursor = Cursor { characters: rest.chars().peekable(), consumed: 0, earlier: &parsed.entries };
        let consumed = match cursor.assignment() {
            Ok(entry) => {
                let consumed = cursor.consumed;
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
    characters: Peekable<Chars<'a>>,
    /// Bytes behind the cursor.
    consumed: usize,
    earlier: &'a [Entry],
}

type Reason = &'static str;

impl Cursor<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.characters.next();
        self.consumed += next.map_or(0, char::len_utf8);
        next
    }

    fn peek(&mut self) -> Option<char> {
        self.characters.peek().copied()
    }

    fn skip_blanks(&mut self) -> bool {
        let mut skipped = false;
        while self.peek().is_some_and(|character| character != '\n' && character.is_whitespace()) {
            self.next();
            skipped = true;
        }
        skipped
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
        self.skip_blanks();
        let value = self.value()?;
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

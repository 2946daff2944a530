//! Label selectors, checked before the API server does.
//!
//! Selectors are settings. The API server would refuse a malformed one only with each attempt to list.

use konverge_core::names::{is_name_segment, is_object_name};

/// A text is no label selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} stands where {expected} is expected; write such as team=a,tier!=test,area in (x,y),!old", shown(found))]
pub struct SelectorError {
    found: String,
    expected: &'static str,
}

fn shown(found: &str) -> String {
    if found.is_empty() { "the end".to_owned() } else { format!("{found:?}") }
}

const NAME: &str = "the name of a label";
const VALUE: &str = "the value of a label";

/// The text, if it is a label selector as `kubectl --selector` takes it. An empty one chooses everything.
///
/// Refuses nothing that the API server takes.
pub fn label_selector(text: &str) -> Result<String, SelectorError> {
    let mut rest = Rest(text);
    if text.trim().is_empty() {
        return Ok(String::new());
    }
    loop {
        rest.requirement()?;
        match rest.next() {
            None => return Ok(text.to_owned()),
            Some(",") => {}
            Some(found) => return Err(unexpected(found, "a comma or the end")),
        }
    }
}

/// The rest of the text.
#[derive(Clone, Copy)]
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    /// Takes a word or a sign. Returns `None` at the end.
    fn next(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start_matches([' ', '\t', '\r', '\n']);
        let is_sign = |letter: char| "=!(),<>".contains(letter);
        let length = if text.starts_with("==") || text.starts_with("!=") {
            2
        } else if text.starts_with(is_sign) {
            1
        } else {
            text.find(|letter| is_sign(letter) || " \t\r\n".contains(letter)).unwrap_or(text.len())
        };
        let (found, rest) = text.split_at(length);
        self.0 = rest;
        (!found.is_empty()).then_some(found)
    }

    /// Takes the next if it is this.
    fn take(&mut self, sign: &str) -> bool {
        let mut after = *self;
        let is_next = after.next() == Some(sign);
        if is_next {
            *self = after;
        }
        is_next
    }

    fn ends(mut self) -> bool {
        self.next().is_none_or(|found| found == ",")
    }

    fn requirement(&mut self) -> Result<(), SelectorError> {
        let must_lack = self.take("!");
        self.word(NAME, is_name)?;
        if must_lack || self.ends() {
            return Ok(());
        }
        match self.next() {
            Some("=" | "==" | "!=") if self.ends() => Ok(()),
            Some("=" | "==" | "!=") => self.word(VALUE, is_name_segment),
            Some("<" | ">") => self.word("a whole number", |word| is_name_segment(word) && word.parse::<i64>().is_ok()),
            Some("in" | "notin") => self.values(),
            found => Err(unexpected(found.unwrap_or_default(), "=, !=, in or notin")),
        }
    }

    /// Each may be empty, and there may be none.
    fn values(&mut self) -> Result<(), SelectorError> {
        if !self.take("(") {
            return Err(unexpected(self.next().unwrap_or_default(), "("));
        }
        loop {
            if self.take(")") {
                return Ok(());
            }
            if self.take(",") {
                continue;
            }
            self.word(VALUE, is_name_segment)?;
            let mut after = *self;
            match after.next() {
                Some("," | ")") => {}
                found => return Err(unexpected(found.unwrap_or_default(), "a comma or )")),
            }
        }
    }

    fn word(&mut self, expected: &'static str, is_good: impl Fn(&str) -> bool) -> Result<(), SelectorError> {
        match self.next() {
            Some(word) if is_good(word) => Ok(()),
            found => Err(unexpected(found.unwrap_or_default(), expected)),
        }
    }
}

fn unexpected(found: &str, expected: &'static str) -> SelectorError {
    SelectorError { found: found.to_owned(), expected }
}

/// With a domain before it, or without.
fn is_name(word: &str) -> bool {
    match word.split_once('/') {
        Some((domain, name)) => is_object_name(domain) && is_name_segment(name),
        None => is_name_segment(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, error) in [
            ("===", "\"==\" stands where the name of a label is expected"),
            ("a=b,", "the end stands where the name of a label is expected"),
            ("a b", "\"b\" stands where =, !=, in or notin is expected"),
            ("a=ä", "\"ä\" stands where the value of a label is expected"),
            ("a in b", "\"b\" stands where ( is expected"),
            ("a in (b", "the end stands where a comma or ) is expected"),
            ("a=b c=d", "\"c\" stands where a comma or the end is expected"),
        ] {
            let told = label_selector(text).unwrap_err().to_string();
            assert!(told.starts_with(error), "{text}: {told}");
        }
    }
}

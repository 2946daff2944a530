//! The lines that belong to a value that cannot be read.
//!
//! Such a value may go on over several lines, and one of them may look like an assignment: the last line of base64 text ends with `=`. Its
//! beginning would become a key, and servers see keys in the clear. So these lines are skipped together.

/// The first and the last line of the blocks in which keys and certificates are written.
const BLOCKS: [(&str, &str); 2] = [("-----BEGIN ", "-----END"), ("---- BEGIN ", "---- END")];

/// Returns the length of the lines of an unreadable assignment at the beginning of `text`. The reader stopped at `read`. `value` is the
/// beginning of a value that may have quotes.
pub(super) fn of_unreadable(text: &str, read: usize, value: Option<usize>) -> usize {
    let quoted = value.map_or(0, |value| value + of_quoted(&text[value..]));
    let mut end = end_of_line(text, read).max(quoted);
    while end < text.len()
        && let Some(last_line) = open_block(&text[..end])
    {
        end = text[end..].find(last_line).map_or(text.len(), |at| end_of_line(text, end + at));
    }
    end
}

/// Returns the length of the lines from a comment with the first line of a block to the last line of the block. Returns `None` unless that
/// last line is outside of comments.
pub(super) fn of_half_commented_block(text: &str, comment: usize) -> Option<usize> {
    let last_line = open_block(&text[..comment])?;
    let at = comment + text[comment..].find(last_line)?;
    let begins_again = BLOCKS.iter().any(|(first_line, _)| text[comment..at].contains(first_line));
    let line = text[..at].rsplit('\n').next()?;
    (!begins_again && !line.trim_start().starts_with('#')).then(|| end_of_line(text, at))
}

/// Returns the last line of the block that begins in the text and does not end there.
pub(super) fn open_block(text: &str) -> Option<&'static str> {
    let is_open = |(first, last): &&(&str, &str)| text.rfind(first).is_some_and(|at| !text[at..].contains(last));
    BLOCKS.iter().find(is_open).map(|(_, last)| *last)
}

/// Returns `true` if the text has the last line of a block without the first one.
pub(super) fn ends_block(text: &str) -> bool {
    BLOCKS.iter().any(|(first, last)| text.find(last).is_some_and(|at| !text[..at].contains(first)))
}

/// Returns `true` if the line could be the last one of base64 text: no value is behind the equals sign.
pub(super) fn may_end_base64(line: &str) -> bool {
    let text = line.trim().strip_suffix('=').unwrap_or_default();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Returns the length of a value up to the end of the line on which its last quote is closed, or of the whole text.
fn of_quoted(text: &str) -> usize {
    let (mut open, mut after_blank) = (None, false);
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match (open, character) {
            (None, '\n') => return at + 1,
            (None, '#') if after_blank => return end_of_line(text, at),
            (None, '\'' | '"' | '`') => open = Some(character),
            (Some(quote), _) if character == quote => open = None,
            (None | Some('"'), '\\') => drop(characters.next()),
            _ => {}
        }
        after_blank = matches!(character, ' ' | '\t');
    }
    text.len()
}

fn end_of_line(text: &str, from: usize) -> usize {
    text[from..].find('\n').map_or(text.len(), |newline| from + newline + 1)
}

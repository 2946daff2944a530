//! Times, tables and lists for people. Pure.

use jiff::Timestamp;

/// How long ago, in one unit, as kubectl says it: `12s`, `5m`, `3h`, `8d`. A time in the future is `0s`.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = (now.as_second() - since.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The moment and how long ago it was.
pub fn when(since: Timestamp, now: Timestamp) -> String {
    let second = Timestamp::from_second(since.as_second()).unwrap_or(since);
    format!("{second} ({} ago)", age(since, now))
}

/// A table with its columns in line. Nothing but names and words of ours is in it; what a message says comes without line breaks.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (cell, width) in cells.zip(&widths) {
            line.push_str(&format!("{cell:<width$}   "));
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    };
    let mut table = line(&mut head.iter().copied());
    for row in rows {
        table.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    table
}

/// Text of others, without control characters.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Lines of at most `width` letters, broken between words. A longer word stays whole.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        for (seconds, expected) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7_199, "119m"),
            (7_200, "2h"),
            (172_799, "47h"),
            (172_800, "2d"),
        ] {
            let now = Timestamp::from_second(1_000_000).unwrap();
            let since = Timestamp::from_second(1_000_000 - seconds).unwrap();
            assert_eq!(age(since, now), expected);
        }
    }

    #[test]
    fn a_table_stands_in_line_whatever_is_in_it() {
        let rows = [vec!["secret/ä".to_owned(), "Synced".to_owned()], vec!["deployment/web".to_owned(), String::new()]];
        assert_eq!(
            table(&["OBJECT", "STATE"], &rows),
            "OBJECT           STATE\nsecret/ä         Synced\ndeployment/web\n"
        );
    }

    #[test]
    fn a_terminal_obeys_nobody_but_its_owner() {
        assert_eq!(harmless("a\u{1b}[31mb\nc"), "a [31mb c");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrapped("averylongword x", 5), ["averylongword", "x"]);
        assert_eq!(wrapped("", 5), [""; 0]);
    }
}

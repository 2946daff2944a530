//! From the shared SQL to that of PostgreSQL.

/// Returns the statement with PostgreSQL's placeholders: `?1` becomes `$1`, and each bare `?` the next number.
pub(super) fn postgres(sql: &str) -> String {
    renumbered(sql, '$', 0)
}

/// Returns the statement with placeholders that have another mark than `?`, and numbers that are higher by `offset`.
pub(super) fn renumbered(sql: &str, mark: char, offset: usize) -> String {
    with_placeholders(sql, |translated, number| {
        translated.push(mark);
        translated.push_str(&(offset + number).to_string());
    })
}

/// Returns the statement with each placeholder as `write` writes it. It gets the text so far, and the number of the value: that of `?2`, or the next for a
/// bare `?`.
pub(super) fn with_placeholders(sql: &str, mut write: impl FnMut(&mut String, usize)) -> String {
    let mut translated = String::with_capacity(sql.len() + 32);
    let mut bare = 0;
    let mut quoted = false;
    let mut characters = sql.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\'' => {
                quoted = !quoted;
                translated.push(character);
            }
            '?' if !quoted => {
                let mut number = 0;
                while let Some(digit) = characters.peek().and_then(|next| next.to_digit(10)) {
                    number = number * 10 + digit as usize;
                    characters.next();
                }
                if number == 0 {
                    bare += 1;
                    number = bare;
                }
                write(&mut translated, number);
            }
            _ => translated.push(character),
        }
    }
    translated
}

/// Returns the migration with PostgreSQL's types. Text compares byte by byte, as in SQLite, whatever the locale of the database.
pub(in crate::store) fn postgres_schema(sql: &str) -> String {
    let without_comments: Vec<&str> = sql.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    without_comments
        .join("\n")
        .replace(") STRICT, WITHOUT ROWID;", ");")
        .replace(") STRICT;", ");")
        .replace(" BLOB", " BYTEA")
        .replace(" INTEGER", " BIGINT")
        .replace(" TEXT", " TEXT COLLATE \"C\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_those_of_postgres() {
        for (shared, translated) in [
            ("SELECT 1", "SELECT 1"),
            ("SELECT a FROM t WHERE b = ? AND c = ?", "SELECT a FROM t WHERE b = $1 AND c = $2"),
            ("SELECT ?2, ?1, ?2, ?10", "SELECT $2, $1, $2, $10"),
            ("SELECT '?', 'it''s ?' || ?", "SELECT '?', 'it''s ?' || $1"),
        ] {
            assert_eq!(postgres(shared), translated);
        }
        assert_eq!(renumbered("SELECT ?2, '?', ?, ?", '?', 7), "SELECT ?9, '?', ?8, ?9");
    }

    #[test]
    fn types_become_those_of_postgres() {
        let shared = "-- A comment.\nCREATE TABLE t (\n    id TEXT PRIMARY KEY,\n    size INTEGER NOT NULL,\n    data BLOB\n) STRICT, WITHOUT ROWID;";
        let translated =
            "CREATE TABLE t (\n    id TEXT COLLATE \"C\" PRIMARY KEY,\n    size BIGINT NOT NULL,\n    data BYTEA\n);";
        assert_eq!(postgres_schema(shared), translated);
    }
}

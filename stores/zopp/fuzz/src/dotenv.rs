//! The parser reads back the same values from what the writer makes of them.

use std::collections::BTreeMap;

use konverge_zopp_cli::dotenv::{Dialect, check, format, parse};

pub(crate) const SEEDS: &[&[u8]] = &[
    b"# a comment\nexport PLAIN=value\nLITERAL='no $escapes here'\nESCAPED=\"a \\\"quoted\\\" word, a \\$ and a \\n newline\"\nJOINED=${PLAIN}/x",
    b"A=1\r\nB = two # comment\nC=\"first\nsecond\"\nD='unclosed\nE=$A$B${C}",
    "\u{feff}K=\u{a0}v\nexport=1\nexport export=2\n=3\nK".as_bytes(),
    b"A=\\q\nB=${\nC=${A\nD=\"\\",
];

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for dialect in [Dialect::Common, Dialect::Dotenvy] {
        let parsed = parse(text, dialect);
        let lines = text.lines().count().max(1);
        for problem in &parsed.problems {
            assert!((1..=lines).contains(&problem.line), "{problem} of {lines}");
        }
        // Of equal keys the last one counts.
        let mut values: BTreeMap<&str, &[u8]> =
            parsed.entries.iter().map(|entry| (entry.key.as_str(), entry.value.expose())).collect();
        values.retain(|key, value| check(key, value).is_ok());
        let written = format(values.iter().map(|(key, value)| (*key, *value))).expect("each value can be written");
        for reader in [Dialect::Common, Dialect::Dotenvy] {
            let again = parse(&written, reader);
            assert_eq!(again.problems, []);
            let again: BTreeMap<&str, &[u8]> =
                again.entries.iter().map(|entry| (entry.key.as_str(), entry.value.expose())).collect();
            assert!(again == values, "{written:?}", written = written.as_str());
        }
    }
}

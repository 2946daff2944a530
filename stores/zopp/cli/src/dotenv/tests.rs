use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn values(text: &str) -> Vec<(String, String)> {
    let parsed = parse(text);
    assert_eq!(parsed.problems, []);
    parsed
        .entries
        .iter()
        .map(|entry| (entry.key.clone(), String::from_utf8(entry.value.expose().to_vec()).unwrap()))
        .collect()
}

#[track_caller]
fn check_one(text: &str, expected: &str) {
    assert_eq!(values(text), [("K".to_owned(), expected.to_owned())], "{text}");
}

#[track_caller]
fn check_problem(text: &str, line: usize, beginning: &str) {
    let parsed = parse(text);
    assert_eq!(parsed.problems.len(), 1, "{text}");
    assert_eq!(parsed.problems[0].line, line, "{text}");
    assert!(parsed.problems[0].reason.starts_with(beginning), "{text}: {}", parsed.problems[0].reason);
}

#[test]
fn bare_values() {
    check_one("K=v", "v");
    check_one("K=", "");
    check_one("  K = v  ", "v");
    check_one("export K=v", "v");
    check_one("K=v # comment", "v");
    check_one("K=v#not-a-comment", "v#not-a-comment");
    check_one("K=a=b", "a=b");
    check_one("K=a\\ b", "a b");
    check_one("K=v\r\n", "v");
    check_one("\u{feff}K=v", "v");
    check_one("# comment\n\n   \nK=v\n", "v");
    check_one("K=5$", "5$");
}

#[test]
fn quoted_values() {
    check_one("K='a $b \\n \"c\"'", "a $b \\n \"c\"");
    check_one(r#"K="a \"b\" \$c \\ \n.""#, "a \"b\" $c \\ \n.");
    check_one("K=\"first\nsecond\"", "first\nsecond");
    check_one("K=a'b c'\"d\"", "ab cd");
    check_one("K=\"\"", "");
    check_one("K=\"# no comment\" # comment", "# no comment");
}

#[test]
fn export_may_be_a_key() {
    assert_eq!(values("export=1"), [("export".to_owned(), "1".to_owned())]);
    assert_eq!(values("export =1"), [("export".to_owned(), "1".to_owned())]);
}

#[test]
fn earlier_lines_are_substituted() {
    assert_eq!(values("A=1\nB=x${A}y$A")[1].1, "x1y1");
    assert_eq!(values("A=1\nA=2\nB=\"$A\"")[2].1, "2");
    assert_eq!(values("A=1\nB='$A'")[1].1, "$A");
}

#[test]
fn the_process_environment_is_not() {
    assert!(std::env::var_os("PATH").is_some());
    check_problem("K=$PATH", 1, "refers to a name");
}

#[test]
fn bad_lines_are_numbered_and_skipped() {
    check_problem("A=1\nnonsense\nB=2", 2, "no \"=\"");
    check_problem("A=1\n=2", 2, "a key is expected");
    check_problem("A=1\n\nB=two words", 3, "text after the value");
    check_problem("A=\"x\ny\"\nB=\\q", 3, "unknown escape");
    check_problem("A=${}", 1, "refers to a name");
    check_problem("A=${B", 1, "\"${\" is not followed");
    check_problem("A='open\nB=2", 1, "a single quote");
    assert_eq!(parse("A='open\nB=2").entries.len(), 1, "the line after an open quote is read");
}

#[test]
fn problems_quote_nothing() {
    let parsed = parse("hunter2 hunter2\nA=\"hunter2");
    assert_eq!(parsed.problems.len(), 2);
    for problem in parsed.problems {
        assert!(!problem.to_string().contains("hunter2"));
    }
}

#[test]
fn plain_values_are_written_as_stock_clients_write_them() {
    let text = format([("URL", b"postgres://u:p@db:5432/x".as_slice()), ("EMPTY", b""), ("N", b"a b\n$c")]).unwrap();
    assert_eq!(*text, "URL=postgres://u:p@db:5432/x\nEMPTY=\nN=\"a b\\n\\$c\"");
}

#[test]
fn what_cannot_be_written_is_named() {
    assert_eq!(format([("a b", b"".as_slice())]).err(), Some(FormatError::Key { key: "a b".to_owned() }));
    assert_eq!(format([("", b"".as_slice())]).err(), Some(FormatError::Key { key: String::new() }));
    assert_eq!(format([("K", [0xff].as_slice())]).err(), Some(FormatError::NotText { key: "K".to_owned() }));
}

proptest! {
    #[test]
    fn export_and_import_are_an_exact_round_trip(
        values in proptest::collection::btree_map("[A-Za-z_][A-Za-z0-9_.-]{0,8}", any::<String>(), 0..8),
    ) {
        let text = format(values.iter().map(|(key, value)| (key.as_str(), value.as_bytes()))).unwrap();
        for text in [text.to_string(), format!("{}\n", *text)] {
            let parsed = parse(&text);
            prop_assert_eq!(&parsed.problems, &[]);
            let read: BTreeMap<String, String> = parsed
                .entries
                .iter()
                .map(|entry| (entry.key.clone(), String::from_utf8(entry.value.expose().to_vec()).unwrap()))
                .collect();
            prop_assert_eq!(&read, &values);
        }
    }

    #[test]
    fn awkward_characters_survive(value in "[ \t\r\n\"'$\\\\#={}a-c]{0,12}") {
        let text = format([("K", value.as_bytes())]).unwrap();
        let parsed = parse(&text);
        prop_assert_eq!(&parsed.problems, &[]);
        prop_assert_eq!(parsed.entries[0].value.expose(), value.as_bytes());
    }

    #[test]
    fn any_text_is_an_answer_not_a_panic(text in any::<String>()) {
        let parsed = parse(&text);
        prop_assert!(parsed.problems.iter().all(|problem| problem.line <= text.matches('\n').count() + 1));
    }

    #[test]
    fn text_of_the_grammars_own_characters_is_no_panic_either(text in "[A-B=\"'$\\\\#{} \n]{0,40}") {
        let _ = parse(&text);
    }
}

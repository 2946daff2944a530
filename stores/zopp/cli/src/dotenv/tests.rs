use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn values(text: &str, dialect: Dialect) -> Vec<(String, String)> {
    let parsed = parse(text, dialect);
    assert_eq!(parsed.problems, []);
    parsed
        .entries
        .iter()
        .map(|entry| (entry.key.clone(), String::from_utf8(entry.value.expose().to_vec()).unwrap()))
        .collect()
}

#[track_caller]
fn check_in(dialect: Dialect, text: &str, expected: &str) {
    assert_eq!(values(text, dialect), [("K".to_owned(), expected.to_owned())], "{text}");
}

/// In both dialects.
#[track_caller]
fn check_one(text: &str, expected: &str) {
    check_in(Dialect::Common, text, expected);
    check_in(Dialect::Dotenvy, text, expected);
}

#[track_caller]
fn check_problem(dialect: Dialect, text: &str, line: usize, beginning: &str) {
    let parsed = parse(text, dialect);
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
    check_one("K=#not-a-comment", "#not-a-comment");
    check_one("K=a=b", "a=b");
    check_one("K=v\r\n", "v");
    check_one("\u{feff}K=v", "v");
    check_one("# comment\n\n   \nK=v\n", "v");
    check_one("K=5$", "5$");
}

#[test]
fn bare_values_are_literal() {
    for (text, expected) in [
        ("K= # comment", ""),
        ("K=   #comment", ""),
        (r#"K={"a":"b\nc","n":[1, 2]} # comment"#, r#"{"a":"b\nc","n":[1, 2]}"#),
        ("K=don't", "don't"),
        (r"K=C:\new\notes", r"C:\new\notes"),
        (r"K=^\d+$", r"^\d+$"),
        ("K=-Xmx2g -Dx=y", "-Xmx2g -Dx=y"),
        ("K=a\\ b", "a\\ b"),
        ("K=a'b c'\"d\"", "a'b c'\"d\""),
        ("K=v\t# comment", "v"),
        ("K=\u{a0}v\u{a0}", "\u{a0}v\u{a0}"),
        ("K=v\r", "v"),
    ] {
        check_in(Dialect::Common, text, expected);
    }
    assert_eq!(values("A=don't\nB=1\nC=can't", Dialect::Common).len(), 3, "an apostrophe swallows no line");
}

#[test]
fn quoted_values() {
    check_one("K='a $b \\n \"c\"'", "a $b \\n \"c\"");
    check_one(r#"K="a \"b\" \$c \\ \n.""#, "a \"b\" $c \\ \n.");
    check_one("K=\"first\nsecond\"", "first\nsecond");
    check_one("K='first\r\nsecond'\r\n", "first\nsecond");
    check_one("K=\"\"", "");
    check_one("K=\"# no comment\" # comment", "# no comment");
    check_in(Dialect::Common, r#"K="a\tb\r\n""#, "a\tb\r\n");
    check_in(Dialect::Common, r#"K="C:\Users\d""#, r"C:\Users\d");
}

#[test]
fn the_published_rules_have_escapes_and_pieces_in_bare_values() {
    check_in(Dialect::Dotenvy, "K=a\\ b", "a b");
    check_in(Dialect::Dotenvy, "K=a'b c'\"d\"", "ab cd");
    check_in(Dialect::Dotenvy, "K='it'\\''s'", "it's");
}

#[test]
fn export_may_be_a_key() {
    for text in ["export=1", "export =1"] {
        assert_eq!(values(text, Dialect::Common), [("export".to_owned(), "1".to_owned())]);
    }
}

#[test]
fn earlier_lines_are_substituted() {
    let second = |text| values(text, Dialect::Dotenvy).pop().unwrap().1;
    assert_eq!(second("A=1\nB=x${A}y$A"), "x1y1");
    assert_eq!(second("A=1\nA=2\nB=\"$A\""), "2");
    assert_eq!(second("A=1\nB='$A'"), "$A");
}

#[test]
fn the_process_environment_is_not() {
    assert!(std::env::var_os("PATH").is_some());
    check_problem(Dialect::Dotenvy, "K=$PATH", 1, "refers to a name");
}

#[test]
fn what_readers_take_for_different_values_is_a_problem() {
    for text in ["A=1\nK=$A", "A=1\nK=\"x${A}\"", "A=1\nK=pa$word", "A=1\nK=pa$1", "A=1\nK=${X:-y}"] {
        check_problem(Dialect::Common, text, 2, "readers disagree on \"$\"");
    }
    check_problem(Dialect::Common, "K=`date`", 1, "readers parse a value that begins with a backtick");
    check_problem(Dialect::Common, "K='it'\\''s'", 1, "text after the value");
    check_problem(Dialect::Common, "K=\"a\" b", 1, "text after the value");
    check_problem(Dialect::Common, "K=a\rb", 1, "readers disagree on a carriage return");
    check_problem(Dialect::Common, "K=\rB=2", 1, "readers disagree on a carriage return");
    for text in [r#"K="C:\bin""#, r#"K="it\'s""#, "K=\"a\\`b\"", r#"K="\"#] {
        check_problem(Dialect::Common, text, 1, "unknown escape");
    }
}

#[test]
fn a_bare_value_with_a_hash_is_doubtful() {
    let doubts = |text, dialect| parse(text, dialect).doubts.iter().map(|doubt| doubt.line).collect::<Vec<_>>();
    let text = "A=v#x\nB=#x\nC= #x\nD=v # x\nE='v#x'\nF=\"v#x\" # y#z\n# a#b\nG={\"a\":\"b#c\"} # d";
    assert_eq!(doubts(text, Dialect::Common), [1, 2, 8]);
    assert_eq!(doubts("A=v#x\nB=#x", Dialect::Dotenvy), [0; 0]);
    for text in ["K='v'#x", "K=\"v\"#x"] {
        check_problem(Dialect::Common, text, 1, "readers disagree on \"#\"");
        check_in(Dialect::Dotenvy, text.get(..5).unwrap(), "v");
    }
}

#[test]
fn bad_lines_are_numbered_and_skipped() {
    for dialect in [Dialect::Common, Dialect::Dotenvy] {
        check_problem(dialect, "A=1\nnonsense\nB=2", 2, "no \"=\"");
        check_problem(dialect, "A=1\n=2", 2, "a key is expected");
        check_problem(dialect, "A=\"x\ny\"\nB=\"\\v\"", 3, "unknown escape");
        check_problem(dialect, "A='open\nB=2", 1, "a single quote");
    }
    check_problem(Dialect::Dotenvy, "A=1\n\nB=two words", 3, "text after the value");
    check_problem(Dialect::Dotenvy, "A=${}", 1, "refers to a name");
    check_problem(Dialect::Dotenvy, "A=${B", 1, "\"${\" is not followed");
}

/// The last line of base64 text looks like an assignment. Servers see keys in the clear.
#[test]
fn no_line_of_an_unreadable_value_becomes_a_key() {
    let block = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nQ4Kp==\n-----END PRIVATE KEY-----\n";
    for (text, is_good_read) in [
        (format!("KEY={block}"), true),
        (format!("export KEY = {block}"), true),
        (block.to_owned(), true),
        (format!("KEY: {block}"), true),
        (format!("KEY={block}{block}"), true),
        (format!("KEY={}{block}", block.trim_end()), true),
        (format!("KEY={block}").replace("==", "="), true),
        (format!("KEY={block}").replace('\n', "\r\n"), true),
        (format!("# KEY={block}"), true),
        ("# KEY=-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIQ4Kp=\n-----END PRIVATE KEY-----\n".to_owned(), true),
        ("MC4CAQAwBQYDK2VwBCIEIQ4Kp=\n-----END PRIVATE KEY-----\n".to_owned(), true),
        ("KEY=-----BEGIN PRIVATE KEY-----\nQ4Kp=\n".to_owned(), false),
        (
            "KEY=---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nQ4Kp=\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\n"
                .to_owned(),
            true,
        ),
        ("KEY=PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\nQ4Kp=\nPrivate-MAC: 0\n".to_owned(), true),
        (format!("KEY=\"{}", block.replace('=', "")), false),
        ("KEY='MIIE\nQ4Kp=\nUSER=x\n".to_owned(), false),
        ("KEY=\"\\v\nQ4Kp=\nUSER=x\n\"\n".to_owned(), true),
        ("KEY=\"it's \\v\nQ4Kp=\nUSER=x\n\" # it's\n".to_owned(), true),
        ("KEY=\"a\nb\" c 'd\nQ4Kp=\nUSER=x'\n".to_owned(), true),
        ("KEY: |\n  MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n  Q4Kp=\n".to_owned(), true),
        ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nQ4Kp-_==\n".to_owned(), true),
        ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n\nQ4Kp=\n".to_owned(), true),
        ("Q4Kp==\n".to_owned(), true),
        ("Q4Kp= = # x\n".to_owned(), true),
    ] {
        for dialect in [Dialect::Common, Dialect::Dotenvy] {
            let parsed = parse(&format!("A=1\n{text}GOOD=1\n"), dialect);
            let keys: Vec<_> =
                parsed.entries.iter().map(|entry| entry.key.as_str()).filter(|key| *key != "KEY").collect();
            let expected = if is_good_read { vec!["A", "GOOD"] } else { vec!["A"] };
            assert_eq!(keys, expected, "{dialect:?}: {text}");
            assert_ne!(parsed.problems, [], "{dialect:?}: {text}");
        }
    }
    for text in ["KEY=\"$HOME\nQ4Kp=\nUSER=x\n\"\n", "KEY='it'\\''s\nQ4Kp=\nUSER=x\n'\n", "KEY=`MIIE\nQ4Kp=\nUSER=x`\n"]
    {
        let parsed = parse(&format!("{text}GOOD=1\n"), Dialect::Common);
        assert_eq!(parsed.entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["GOOD"], "{text}");
        let [Problem { line: 1, last_line, .. }] = parsed.problems[..] else { panic!("{text}: {:?}", parsed.problems) };
        assert_eq!(last_line, text.lines().count(), "{text}");
    }
}

#[test]
fn texts_about_blocks_and_quoted_blocks_are_read() {
    let quoted = "-----BEGIN PRIVATE KEY-----\nQ4Kp==\n-----END PRIVATE KEY-----";
    check_one(&format!("K='{quoted}'"), quoted);
    check_one(&format!("K=\"{quoted}\""), quoted);
    check_one(&format!("# after -----BEGIN PRIVATE KEY-----\nK='{quoted}'"), quoted);
    check_one(&format!("# {}\nK=v", quoted.replace('\n', "\n# ")), "v");
    check_one("# a -----BEGIN line\nK=v", "v");
    check_one("K='='", "=");
    check_one("K=\"==\"", "==");
    check_one("K=abc==", "abc==");
    check_in(Dialect::Common, "K=-----BEGIN X----- a -----END X-----", "-----BEGIN X----- a -----END X-----");
    assert_eq!(values("A=1\nEMPTY=\nB=2", Dialect::Common).len(), 3);
}

#[test]
fn problems_quote_nothing() {
    for dialect in [Dialect::Common, Dialect::Dotenvy] {
        let parsed = parse("hunter2 hunter2\nA=\"hunter2", dialect);
        assert_eq!(parsed.problems.len(), 2);
        for problem in parsed.problems {
            assert!(!problem.to_string().contains("hunter2"));
        }
    }
}

proptest! {
    #[test]
    fn export_and_import_are_an_exact_round_trip(
        mut values in proptest::collection::btree_map("[A-Za-z_][A-Za-z0-9_]{0,8}", any::<String>(), 0..8),
    ) {
        values.retain(|key, value| check(key, value.as_bytes()).is_ok());
        let text = format(values.iter().map(|(key, value)| (key.as_str(), value.as_bytes()))).unwrap();
        for text in [text.to_string(), format!("{}\n", *text)] {
            for dialect in [Dialect::Common, Dialect::Dotenvy] {
                let parsed = parse(&text, dialect);
                prop_assert_eq!(&parsed.problems, &[]);
                let read: BTreeMap<String, String> = parsed
                    .entries
                    .iter()
                    .map(|entry| (entry.key.clone(), String::from_utf8(entry.value.expose().to_vec()).unwrap()))
                    .collect();
                prop_assert_eq!(&read, &values);
            }
        }
    }

    #[test]
    fn awkward_characters_survive(value in "[ \t\n\"'$\\\\#={}a-c]{0,12}") {
        let Ok(text) = format([("K", value.as_bytes())]) else { return Ok(()) };
        for dialect in [Dialect::Common, Dialect::Dotenvy] {
            let parsed = parse(&text, dialect);
            prop_assert_eq!(&parsed.problems, &[]);
            prop_assert_eq!(parsed.entries[0].value.expose(), value.as_bytes());
        }
    }

    #[test]
    fn any_text_is_an_answer_not_a_panic(text in any::<String>()) {
        for dialect in [Dialect::Common, Dialect::Dotenvy] {
            let parsed = parse(&text, dialect);
            prop_assert!(parsed.problems.iter().all(|problem| problem.line <= text.matches('\n').count() + 1));
        }
    }

    #[test]
    fn text_of_the_grammars_own_characters_is_no_panic_either(text in "[A-B=\"'$\\\\#{} \r\n]{0,40}") {
        for dialect in [Dialect::Common, Dialect::Dotenvy] {
            let _ = parse(&text, dialect);
        }
    }
}

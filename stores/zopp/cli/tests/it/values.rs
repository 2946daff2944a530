//! Values arrive as they were given, whatever they are and whichever way they take.

use std::{fs, os::unix::fs::PermissionsExt};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use crate::world::World;

#[test]
fn c4_standard_input_is_taken_byte_for_byte() {
    let World { alice, server: _server } = World::new();
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    assert_eq!(alice.ok_with_stdin("secret set BYTES", &bytes), "Secret 'BYTES' set\n");
    assert_eq!(alice.run("secret get BYTES --raw").stdout, bytes);
    assert_eq!(alice.run("secret get BYTES").stdout, [bytes.as_slice(), b"\n"].concat());
    let base64 = alice.json("secret get BYTES")["value"]["base64"].as_str().unwrap().to_owned();
    assert!(base64.starts_with("AAECAwQF"), "{base64}");
    for line in ["secret set FILE -", "secret set FILE --stdin"] {
        let ended = alice.run_with_stdin(line, b"first\nsecond\n");
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
        assert_eq!(alice.run("secret get FILE --raw").stdout, b"first\nsecond\n");
    }
}

#[test]
fn the_newline_of_an_echo_is_kept_and_pointed_out() {
    let World { alice, server: _server } = World::new();
    let ended = alice.run_with_stdin("secret set K -", b"password\n");
    assert!(ended.stderr.starts_with("Note: the value ends with a newline"), "{}", ended.stderr);
    assert_eq!(alice.run("secret get K --raw").stdout, b"password\n");
}

#[test]
fn empty_values_and_values_with_a_dash_are_values() {
    let World { alice, server: _server } = World::new();
    let ended = alice.run_with_stdin("secret set EMPTY --stdin", b"");
    assert_eq!((ended.code, ended.stderr.as_str()), (0, "Note: the value is empty, as read.\n"));
    assert_eq!(alice.run("secret get EMPTY --raw").stdout, b"");
    alice.ok("secret set DASH --not-a-flag");
    assert_eq!(alice.ok("secret get DASH"), "--not-a-flag\n");
    alice.ok("secret set FLAG -- -w");
    assert_eq!(alice.ok("secret get FLAG"), "-w\n");
}

#[test]
fn c3_export_and_import_round_trip_over_the_wire() {
    let World { alice, server: _server } = World::new();
    let alice = &alice;
    alice.ok("environment create copy");
    let values = proptest::collection::btree_map("[A-Z][A-Z0-9_]{0,6}", "[ -~\n\t\r]{0,20}|\\PC{0,8}", 1..5);
    let mut runner = TestRunner::new(Config { cases: 4, failure_persistence: None, ..Config::default() });
    runner
        .run(&values, |values| {
            for (key, value) in &values {
                alice.ok_with_stdin(&format!("secret set {key} -"), value.as_bytes());
            }
            let text = alice.ok("secret export");
            let count = text.lines().count();
            prop_assert_eq!(
                alice.ok_with_stdin("secret import -e copy", text.as_bytes()),
                format!("Imported {count} secrets\n")
            );
            prop_assert_eq!(alice.ok("secret export -e copy"), text.as_str());
            let copy = alice.json("secret export -e copy");
            for (key, value) in &values {
                prop_assert_eq!(copy[key].as_str(), Some(value.as_str()));
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn c2_an_exported_file_is_private_and_read_back() {
    let World { alice, server: _server } = World::new();
    alice.ok("secret set A one");
    alice.ok_with_stdin("secret set B -", b"two words");
    let stderr = alice.fails("secret export -e nowhere", 1);
    assert!(stderr.contains("(NotFound)"), "{stderr}");

    assert_eq!(alice.ok("secret export -o .env"), "Exported 2 secrets to .env\n");
    let file = alice.path(".env");
    assert_eq!(fs::read_to_string(&file).unwrap(), "A=one\nB=\"two words\"");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    alice.ok("secret delete A");
    assert_eq!(alice.ok("secret import -i .env"), "Imported 2 secrets\n");
    assert_eq!(alice.ok("secret export"), "A=one\nB=\"two words\"\n");
    let stderr = alice.fails("secret export -o no/such/directory/.env", 1);
    assert!(stderr.starts_with("Error: cannot write no/such/directory/.env: "), "{stderr}");
}

#[test]
fn import_reports_lines_it_skips() {
    let World { alice, server: _server } = World::new();
    let ended = alice.run_with_stdin("secret import", b"A=1\nnonsense\nB=$PATH\nC=${A}2\n");
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), "Imported 2 secrets\n");
    assert_eq!(
        ended.stderr,
        "Warning: standard input: line 2: no \"=\" after the key; skipped\nWarning: standard input: line 3: refers to a \
         name that no earlier line sets; write \"\\$\" for a dollar sign; skipped\n"
    );
    assert_eq!(alice.ok("secret export"), "A=1\nC=12\n");
    for (stdin, expected) in [
        (b"".as_slice(), "Error: standard input holds no secrets in dotenv format\n  Write lines like KEY=value.\n"),
        (b"A=\xff", "Error: standard input is not UTF-8 text from byte 2 on\n"),
    ] {
        assert_eq!(alice.run_with_stdin("secret import", stdin).failed("secret import", 1), expected);
    }
    let stderr = alice.fails("secret import -i missing.env", 1);
    assert_eq!(stderr, "Error: cannot read missing.env: No such file or directory (os error 2)\n");
}

#[test]
fn what_dotenv_cannot_hold_is_named_and_json_holds_it() {
    let World { alice, server: _server } = World::new();
    assert_eq!(alice.fails("secret export", 1), "Error: there are no secrets in acme/backend/dev to export\n");
    alice.ok_with_stdin("secret set BYTES -", &[0xff]);
    let stderr = alice.fails("secret export", 1);
    assert!(
        stderr.starts_with("Error: cannot export acme/backend/dev: the value of \"BYTES\" is not UTF-8 text"),
        "{stderr}"
    );
    assert_eq!(alice.json("secret export"), serde_json::json!({"BYTES": {"base64": "/w=="}}));
}

#[test]
fn equal_changes_within_a_second_are_not_taken_for_replays() {
    let World { alice, server: _server } = World::new();
    for _ in 0..4 {
        alice.ok("secret set K v");
        alice.ok("secret delete K");
    }
}

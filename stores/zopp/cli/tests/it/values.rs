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

/// The server sees keys in the clear, so a value in place of a key would not be secret.
#[test]
fn a_value_behind_an_equals_sign_never_leaves_the_machine() {
    let World { alice, server } = World::new();
    // There is no server, so a command that sends something fails differently.
    drop(server);
    for (line, right) in [
        ("secret set DB_PASSWORD=hunter2", "zopp secret set KEY"),
        ("secret set DB_PASSWORD=hunter2 value", "zopp secret set KEY"),
        ("secret set hunter2\u{7} value", "zopp secret set KEY"),
        ("secret edit DB_PASSWORD=hunter2", "zopp secret edit KEY"),
        ("secret rollback DB_PASSWORD=hunter2 --to 1", "zopp secret rollback KEY"),
        ("secret get DB_PASSWORD=hunter2", "zopp secret get KEY"),
        ("secret history DB_PASSWORD=hunter2", "zopp secret history KEY"),
        ("secret forget DB_PASSWORD=hunter2", "zopp secret forget KEY"),
        ("secret delete DB_PASSWORD=hunter2", "zopp secret delete KEY"),
    ] {
        let stderr = alice.fails(line, 2);
        assert!(!stderr.contains("hunter2") && stderr.contains(right), "{stderr}");
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
    let values = proptest::collection::btree_map("X[A-Z0-9]{0,6}", "[ -~\n\t\r]{0,20}|\\PC{0,8}", 1..5);
    let mut runner = TestRunner::new(Config { cases: 4, failure_persistence: None, ..Config::default() });
    runner
        .run(&values, |values| {
            let mut count = 0;
            for (key, value) in &values {
                // A value without a form is left out, so it does not count.
                count += usize::from(konverge_zopp_cli::dotenv::check(key, value.as_bytes()).is_ok());
                alice.ok_with_stdin(&format!("secret set {key} -"), value.as_bytes());
            }
            prop_assume!(count > 0);
            let text = alice.ok("secret export --skip-invalid");
            prop_assert_eq!(
                alice.ok_with_stdin("secret import -e copy", text.as_bytes()),
                format!("Imported {count} secrets\n")
            );
            prop_assert_eq!(alice.ok("secret export -e copy"), text.as_str());
            let copy = alice.json("secret export -e copy");
            for (key, value) in &values {
                let is_written = konverge_zopp_cli::dotenv::check(key, value.as_bytes()).is_ok();
                prop_assert_eq!(copy[key].as_str(), is_written.then_some(value.as_str()));
            }
            for key in values.keys() {
                alice.ok(&format!("secret delete {key}"));
                let _ = alice.run(&format!("secret delete {key} -e copy"));
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
    assert_eq!(fs::read_to_string(&file).unwrap(), "A=one\nB='two words'");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    alice.ok("secret delete A");
    assert_eq!(alice.ok("secret import -i .env"), "Imported 2 secrets\n");
    assert_eq!(alice.ok("secret export"), "A=one\nB='two words'\n");
    let stderr = alice.fails("secret export -o no/such/directory/.env", 1);
    assert!(stderr.starts_with("Error: cannot write no/such/directory/.env: "), "{stderr}");
}

#[test]
fn a_file_with_a_bad_line_is_imported_as_a_whole_or_on_request_in_part() {
    let World { alice, server: _server } = World::new();
    let file = b"A=1\nnonsense\nB=pa$word\nC='hunter2\n";
    let stderr = alice.run_with_stdin("secret import", file).failed("secret import", 1);
    assert_eq!(
        stderr,
        "Error: nothing was imported from standard input: line 2: no \"=\" after the key; line 3: readers disagree on \"$\" before a name; use \
         single quotes, or --dialect dotenvy for the value of an earlier line; line 4: a single quote is not closed\n  \
         Correct the line, or leave out such lines: --skip-invalid.\n"
    );
    assert_eq!(alice.ok("secret list"), "No secrets found\n");

    let ended = alice.run_with_stdin("secret import --skip-invalid", file);
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), "Imported 1 secrets\n");
    assert!(
        ended.stderr.starts_with("Warning: standard input: line 2: no \"=\" after the key; skipped\n"),
        "{}",
        ended.stderr
    );
    assert_eq!(alice.ok("secret export"), "A=1\n");
    alice.ok_with_stdin("secret import --dialect dotenvy", b"A=1\nB=${A}2\nC=it\\'s\n");
    assert_eq!(alice.ok("secret export"), "A=1\nB=12\nC=\"it's\"\n");
    for (stdin, expected) in [
        (b"".as_slice(), "Error: standard input holds no secrets in dotenv format\n  Write lines like KEY=value.\n"),
        (b"A=\xff", "Error: standard input is not UTF-8 text from byte 2 on\n"),
    ] {
        assert_eq!(alice.run_with_stdin("secret import", stdin).failed("secret import", 1), expected);
    }
    let stderr = alice.fails("secret import -i missing.env", 1);
    assert_eq!(stderr, "Error: cannot read missing.env: No such file or directory (os error 2)\n");
}

/// The server and its audit log see keys in the clear.
#[test]
fn no_line_of_a_bare_private_key_becomes_the_key_of_a_secret() {
    let World { alice, server: _server } = World::new();
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nQ4Kp==\n-----END PRIVATE KEY-----\n";
    for (text, lines) in [
        (format!("A=1\nTLS={key}B=2\n"), "lines 2 to 5"),
        (format!("A=1\n{key}B=2\n"), "lines 2 to 5"),
        (format!("A=1\nTLS=\"\\v{key}\"\nB=2\n"), "lines 2 to 6"),
        ("A=1\nQ4Kp==\nB=2\n".to_owned(), "line 2"),
        (format!("A=1\nB=2\nTLS='{key}"), "lines 3 to 6"),
    ] {
        let stderr = alice.run_with_stdin("secret import", text.as_bytes()).failed("secret import", 1);
        assert!(stderr.contains(lines), "{text}: {stderr}");
        let ended = alice.run_with_stdin("secret import --skip-invalid", text.as_bytes());
        assert!(
            ended.stderr.contains(&format!("{lines}: ")) && !ended.stderr.contains("Q4Kp"),
            "{text}: {}",
            ended.stderr
        );
        assert_eq!(ended.succeeded("secret import"), "Imported 2 secrets\n");
        assert_eq!(alice.ok("secret list"), "Secrets:\n  A\n  B\n", "{text}");
    }
    let skipped =
        alice.run_with_stdin("secret import --skip-invalid --output json", format!("A=1\nTLS={key}").as_bytes());
    let skipped: serde_json::Value = serde_json::from_slice(&skipped.stdout).unwrap();
    assert_eq!(skipped, serde_json::json!({"imported": 1, "skipped_lines": [2, 3, 4, 5]}));
}

#[test]
fn what_dotenv_cannot_hold_is_named_and_json_holds_it() {
    let World { alice, server: _server } = World::new();
    assert_eq!(alice.fails("secret export", 1), "Error: there are no secrets in acme/backend/dev to export\n");
    assert_eq!(alice.json("secret export"), serde_json::json!({}));
    alice.ok_with_stdin("secret set BYTES -", &[0xff]);
    let stderr = alice.fails("secret export", 1);
    assert!(
        stderr.starts_with("Error: cannot export acme/backend/dev: the value of \"BYTES\" is not UTF-8 text"),
        "{stderr}"
    );
    assert_eq!(alice.json("secret export"), serde_json::json!({"BYTES": {"base64": "/w=="}}));
    alice.ok("secret export -o json --file all.json");
    let written: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(alice.path("all.json")).unwrap()).unwrap();
    assert_eq!(written, serde_json::json!({"BYTES": {"base64": "/w=="}}));

    alice.ok("secret set A one");
    alice.ok_with_stdin("secret set BOTH -", b"it's `hunter2`");
    let ended = alice.run("secret export --skip-invalid");
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), "A=one\n");
    assert!(ended.stderr.contains("\"BOTH\"") && ended.stderr.contains("\"BYTES\""), "{}", ended.stderr);
    assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
}

#[test]
fn equal_changes_within_a_second_are_not_taken_for_replays() {
    let World { alice, server: _server } = World::new();
    for _ in 0..4 {
        alice.ok("secret set K v");
        alice.ok("secret delete K");
    }
}

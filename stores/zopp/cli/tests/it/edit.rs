//! `zopp secret edit`, with editors that are scripts.

use std::{fs, path::PathBuf};

use konverge_testkit::write_program;

use crate::{home::Home, world::World};

/// Makes a script the editor. It gets the file as its first argument.
fn editor(home: &mut Home, script: &str) -> PathBuf {
    let path = home.path("editor");
    write_program(&path, format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
    home.set("EDITOR", path.to_str().unwrap());
    path
}

#[test]
fn the_editor_sees_the_value_in_a_private_file_that_is_gone_afterwards() {
    let World { mut alice, server: _server } = World::new();
    alice.ok("secret set GREETING hello");
    let notes = alice.path("notes");
    let notes = notes.display();
    editor(
        &mut alice,
        &format!(
            "cat \"$1\" > {notes}; echo >> {notes}; stat -c %a \"$1\" \"$(dirname \"$1\")\" >> {notes}; echo \"$1\" >> {notes}\n\
             cp \"$1\" \"$1~\"; echo goodbye > \"$1\""
        ),
    );
    assert_eq!(alice.ok("secret edit GREETING"), "Secret 'GREETING' set\n");
    assert_eq!(alice.run("secret get GREETING --raw").stdout, b"goodbye", "without the newline that the editor added");
    let notes = fs::read_to_string(alice.path("notes")).unwrap();
    let lines: Vec<_> = notes.lines().collect();
    assert_eq!(lines[..3], ["hello", "600", "700"]);
    assert!(!PathBuf::from(lines[3]).parent().unwrap().exists(), "nothing stays behind");
}

#[test]
fn nothing_is_written_if_nothing_was_changed_or_the_editor_failed() {
    let World { mut alice, server: _server } = World::new();
    alice.ok("secret set GREETING hello");
    let version = |alice: &Home| alice.json("secret list")["version"].clone();
    let before = version(&alice);
    alice.set("VISUAL", "true");
    assert_eq!(alice.ok("secret edit GREETING"), "Secret 'GREETING' unchanged\n");
    alice.set("VISUAL", "");
    editor(&mut alice, "echo changed > \"$1\"; echo \"$1\" > left; exit 3");
    let stderr = alice.fails("secret edit GREETING", 1);
    assert!(
        stderr.starts_with("Error: cannot edit secret 'GREETING' of acme/backend/dev: the editor ")
            && stderr.contains("failed"),
        "{stderr}"
    );
    let left = fs::read_to_string(alice.path("left")).unwrap();
    assert!(!PathBuf::from(left.trim()).exists());
    assert_eq!(version(&alice), before);
    assert!(alice.fails("secret edit GONE", 1).contains("(NotFound)"));
}

#[test]
fn a_value_that_somebody_else_changed_meanwhile_stays() {
    let World { mut alice, server: _server } = World::new();
    alice.ok("secret set GREETING hello");
    let zopp = env!("CARGO_BIN_EXE_zopp");
    editor(&mut alice, &format!("echo mine > \"$1\"; {zopp} secret set GREETING theirs > /dev/null"));
    let stderr = alice.fails("secret edit GREETING", 1);
    assert!(stderr.contains("changed by somebody else meanwhile"), "{stderr}");
    assert_eq!(alice.ok("secret get GREETING"), "theirs\n");
    alice.ok_with_stdin("secret set BYTES -", &[0xff]);
    assert!(alice.fails("secret edit BYTES", 1).contains("not UTF-8 text"));
}

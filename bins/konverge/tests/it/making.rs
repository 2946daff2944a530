//! `konverge new`.

use std::{
    path::Path,
    process::{Command, Output},
};

fn konverge(folder: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_konverge")).args(line.split(' ')).current_dir(folder).output().unwrap()
}

#[test]
fn it_makes_an_operator_and_tells_what_to_do_next() {
    let folder = tempfile::tempdir().unwrap();
    let output = konverge(folder.path(), "new hello --kind Widget --group acme.dev");
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("made hello, an operator for Widget of acme.dev") && told.contains("cargo test"), "{told}");
    assert!(folder.path().join("hello/src/lib.rs").is_file());

    let again = konverge(folder.path(), "new hello");
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8(again.stderr).unwrap().contains("exists and is left alone"));
}

#[test]
fn arguments_that_make_no_sense_are_refused_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    for (line, code) in [("new", 2), ("new --kind", 2), ("new Hello", 1), ("nonsense", 2), ("new --help", 0)] {
        let output = konverge(folder.path(), line);
        assert_eq!(output.status.code(), Some(code), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

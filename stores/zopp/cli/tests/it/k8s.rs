//! `zopp sync k8s` and `zopp diff k8s` become the program that knows Kubernetes.

use std::{
    fs::File,
    path::Path,
    process::{Command, Output},
};

use konverge_testkit::write_program;

const LINES: [&str; 2] = [
    "--server http://x:1 sync k8s --namespace shop --secret db -e dev --force --output json",
    "diff k8s --namespace shop --secret db --exit-code",
];

/// Runs the `zopp` of a folder: the other program may be built beside that of this workspace.
fn run(folder: &Path, path: &str, line: &str) -> Output {
    let mut command = Command::new(folder.join("zopp"));
    command.args(line.split_whitespace()).env_clear().env("HOME", folder).env("PATH", path);
    command.output().unwrap()
}

fn write_script(file: &Path, code: u8) {
    let script = format!("#!/bin/sh\necho \"$@\"\nexit {code}\n");
    write_program(file, script.as_bytes()).unwrap();
}

#[test]
fn the_other_program_gets_the_same_arguments() {
    let (install, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_program(&install.path().join("zopp"), File::open(env!("CARGO_BIN_EXE_zopp")).unwrap()).unwrap();
    let path = elsewhere.path().to_str().unwrap();
    let stderr = String::from_utf8(run(install.path(), path, LINES[1]).stderr).unwrap();
    assert!(stderr.starts_with("Error: cannot run zopp-k8s, which has the verbs for Kubernetes: "), "{stderr}");
    assert!(stderr.ends_with("\n  Put zopp-k8s beside zopp, or into a directory of PATH.\n"), "{stderr}");

    write_script(&elsewhere.path().join("zopp-k8s"), 3);
    for line in LINES {
        let Output { status, stdout, .. } = run(install.path(), path, line);
        assert_eq!((status.code(), String::from_utf8(stdout).unwrap()), (Some(3), format!("{line}\n")));
    }
    write_script(&install.path().join("zopp-k8s"), 0);
    assert!(run(install.path(), path, LINES[1]).status.success(), "that beside zopp comes first");
    assert_eq!(run(install.path(), path, "sync k8s --namespace shop").status.code(), Some(2));
}

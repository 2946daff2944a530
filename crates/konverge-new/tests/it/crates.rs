//! The crate that is made: whole, left alone where something is, and passing its own tests.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use konverge_new::{New, NewError};

fn new(name: &str) -> New {
    New { name: name.to_owned(), kind: "Proxy".to_owned(), group: "acme.dev".to_owned(), konverge: None, path: None }
}

/// The folder in which cargo builds this workspace; this test lies in `debug/deps` of it.
pub(crate) fn target() -> PathBuf {
    env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// A program that runs in `folder`. If it runs cargo, that builds into the folder of this workspace.
pub(crate) fn program(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    // It shares the builds of the workspace, and fetches nothing that the workspace does not have.
    command.current_dir(folder).env("CARGO_TARGET_DIR", target()).env("CARGO_NET_OFFLINE", "true");
    // As the workspace builds third-party code, which would otherwise be compiled once more.
    command.env("CARGO_PROFILE_DEV_DEBUG", "false");
    for (name, _) in env::vars_os() {
        // Cargo sets these for the crate of this test, not for the other one.
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// The cargo of this test, for the crate in `folder`.
pub(crate) fn cargo(folder: &Path) -> Command {
    program(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), folder)
}

/// Runs it, and shows what it says if it fails.
pub(crate) fn passes(folder: &Path, arguments: &[&str]) {
    let output = cargo(folder).args(arguments).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "cargo {arguments:?} failed\n{out}\n{err}");
}

#[test]
fn a_new_operator_is_formatted_and_passes_its_tests() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("made");
    let told = new("made-by-konverge-new").write(&folder).unwrap();
    assert!(told.contains("cargo test"), "{told}");
    passes(&folder, &["fmt", "--check"]);
    // Its tests say that it lives under its role, and that the generated files are what its own code would generate.
    passes(&folder, &["test", "--quiet"]);
    let lock = fs::read_to_string(folder.join("Cargo.lock")).unwrap();
    assert!(lock.contains("name = \"made-by-konverge-new\"") && !lock.contains("zopp"), "cargo has pruned the lock");
}

#[test]
fn every_file_has_the_new_names_and_none_of_the_template() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("named");
    let new = New { kind: "LoadBalancer".to_owned(), group: "lb.acme.dev".to_owned(), ..new("lb-operator") };
    new.write(&folder).unwrap();
    let mut folders = vec![folder.clone()];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            count += 1;
            let text = fs::read_to_string(&path).unwrap();
            if !path.ends_with("Cargo.lock") {
                for word in ["konverge-template", "konverge_template", "reeting", "example.io", "CHECKOUT"] {
                    assert!(!text.contains(word), "{} has {word}", path.display());
                }
            }
        }
    }
    assert_eq!(count, 21, "{}", folder.display());
    let crds = fs::read_to_string(folder.join("deploy/crds.yaml")).unwrap();
    assert!(crds.contains("name: loadbalancers.lb.acme.dev\n"), "{crds}");
}

#[test]
fn what_is_there_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine"), "mine").unwrap();
    let error = new("hello").write(folder.path()).unwrap_err();
    assert!(matches!(&error, NewError::Exists(_)), "{error}");
    assert!(error.to_string().contains("--path"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn nothing_is_left_where_nothing_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("hello");
    let bad = New { kind: "no".to_owned(), ..new("hello") };
    assert!(matches!(bad.write(&place), Err(NewError::Name(_))));
    let lost = New { konverge: Some(folder.path().to_owned()), ..new("hello") };
    let error = lost.write(&place).unwrap_err();
    assert!(matches!(&error, NewError::NoKonverge(_)), "{error}");
    assert!(!place.exists());
}
